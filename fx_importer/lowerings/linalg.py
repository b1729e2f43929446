"""Emitter of linalg, tensor, arith and math for users' lowerings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

from fx_importer.lowerings.constants import CannotEmit, extreme, product
from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.linalg import LinalgOps

_FLOAT = {
    "add": "arith.addf",
    "sub": "arith.subf",
    "mul": "arith.mulf",
    "div": "arith.divf",
    "pow": "math.powf",
    "maximum": "arith.maximumf",
    "minimum": "arith.minimumf",
    "abs": "math.absf",
    "floor": "math.floor",
    "ceil": "math.ceil",
    "exp": "math.exp",
    "log": "math.log",
    "sqrt": "math.sqrt",
    "rsqrt": "math.rsqrt",
    "tanh": "math.tanh",
    "erf": "math.erf",
    "sin": "math.sin",
    "cos": "math.cos",
    "select": "arith.select",
}
_INTEGER = {
    "add": "arith.addi",
    "sub": "arith.subi",
    "mul": "arith.muli",
    "div": "arith.divsi",
    "maximum": "arith.maxsi",
    "minimum": "arith.minsi",
    "abs": "math.absi",
    "logical_and": "arith.andi",
    "logical_or": "arith.ori",
    "select": "arith.select",
}
_BOOL = {
    **_INTEGER,
    "maximum": "arith.ori",
    "minimum": "arith.andi",
    "mul": "arith.andi",
    "add": "arith.ori",
}
_PREDICATES = {
    "equal": ("oeq", "eq", "eq"),
    "greater": ("ogt", "sgt", "ugt"),
    "greater_equal": ("oge", "sge", "uge"),
}
"""Of comparisons of floats, of integers, and of bools."""
_TYPE = re.compile(r"(?P<kind>i|b?f)(?P<bits>\d+)")
_REDUCTIONS = {"sum": "add", "amax": "maximum", "amin": "minimum"}


class LinalgEmitter(TargetEmitter):
    """Emits elementwise operations as ``linalg.generic`` with arith and math, and data movement as ``tensor``."""

    @cached_property
    def linalg(self) -> LinalgOps:
        """Emits linalg, tensor and arith at the same point."""
        return self.using(LinalgOps)

    def _constant(self, value: ir.Attribute, kind: ir.Type) -> ir.Value:
        return self.op("arith.constant", [kind], (), {"value": value}).result

    # --- elementwise operations -------------------------------------------------------------------------------------

    def _map(self, name: str, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
        element = ir.RankedTensorType(kind).element_type
        return self._broadcasting(operands, kind, lambda emit, scalars: _scalar(emit, name, scalars, element))

    def _broadcast(self, x: ir.Value, like: ir.Value, kind: ir.Type) -> ir.Value:
        return self._broadcasting((x, like), kind, lambda _, scalars: scalars[0])

    def _broadcasting(
        self,
        operands: Sequence[ir.Value],
        kind: ir.Type,
        body: Callable[[LinalgOps, Sequence[ir.Value]], ir.Value],
    ) -> ir.Value:
        """Emit an elementwise operation; ``body`` takes an element of each of ``operands``, which broadcast."""
        rank = len(self.shape(kind))
        sizes = [
            self._operand_size(axis - rank, operands) if size is None else size
            for axis, size in enumerate(self.shape(kind))
        ]
        maps = []
        for shape in map(self.shape, operands):
            first = rank - len(shape)
            maps.append(self.linalg.select_axes(rank, [None if n == 1 else first + i for i, n in enumerate(shape)]))
        maps.append(self.linalg.select_axes(rank, range(rank)))
        empty = self.linalg.empty(sizes, ir.RankedTensorType(kind).element_type)
        return self.linalg.generic(operands, [empty], maps, lambda emit, elements: [body(emit, elements[:-1])])[0]

    def _operand_size(self, axis: int, operands: Sequence[ir.Value]) -> Size:
        """Return the dynamic size of the result's ``axis``, which is negative."""
        for operand in operands:
            sizes = self.shape(operand)
            if len(sizes) >= -axis and sizes[axis] is None:
                return self.linalg.size(operand, len(sizes) + axis)
        raise AssertionError("a dynamic size comes from an operand")

    # --- data movement ----------------------------------------------------------------------------------------------

    def _reshape(self, x: ir.Value, kind: ir.Type) -> ir.Value:
        old, new = self.shape(x), self.shape(kind)
        if new.count(None) > 1:
            raise CannotEmit(f"{kind} has more than one dynamic size: use inline")
        flat = x
        if not old:
            flat = self.linalg.expand_shape(x, [], [1])
        elif len(old) > 1:
            line = self.tensor((None if None in old else product(old),), self.element(x))
            flat = self.linalg.collapse_shape(x, [range(len(old))], line)
        if len(new) == 1:
            return flat
        if not new:
            return self.linalg.collapse_shape(flat, [], kind)
        known = product([size for size in new if size is not None])
        rest = self.linalg.index_op("divui", self.linalg.size(flat, 0), known) if None in new else 0
        return self.linalg.expand_shape(flat, [range(len(new))], [rest if size is None else size for size in new])

    def _transpose(self, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        empty = self.linalg.empty([self.linalg.size(x, axis) for axis in axes], ir.RankedTensorType(kind).element_type)
        permutation = {"permutation": self.array(axes)}
        return self.linalg.structured("transpose", [x], [empty], lambda _, elements: elements[:1], permutation)[0]

    def _concat(self, tensors: Sequence[ir.Value], axis: int, kind: ir.Type) -> ir.Value:
        return self.op("tensor.concat", [kind], tensors, {"dim": self.i64(axis)}).result

    def _slice(self, x: ir.Value, starts: Sequence[int], kind: ir.Type) -> ir.Value:
        sizes = [self.linalg.size(x, axis) if size is None else size for axis, size in enumerate(self.shape(kind))]
        return self.linalg.extract_slice(x, starts, sizes, range(len(sizes)))

    # --- reductions and products ------------------------------------------------------------------------------------

    def _reduce(self, name: str, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        element = ir.RankedTensorType(x.type).element_type
        start = self.linalg.constant_scalar(
            0 if name == "sum" else extreme(str(element), least=name == "amax"), element
        )
        sizes = [self.linalg.size(x, axis) for axis in range(len(self.shape(x))) if axis not in axes]
        filled = self.linalg.fill(start, self.linalg.empty(sizes, element))
        reduced = self.linalg.structured(
            "reduce",
            [x],
            [filled],
            lambda emit, elements: [_scalar(emit, _REDUCTIONS[name], elements, element)],
            {"dimensions": self.array(axes)},
        )[0]
        return reduced if reduced.type == kind else self._reshape(reduced, kind)

    def _matmul(self, x: ir.Value, y: ir.Value, kind: ir.Type) -> ir.Value:
        rank, element = len(self.shape(kind)), ir.RankedTensorType(kind).element_type
        sizes = [*(self.linalg.size(x, axis) for axis in range(rank - 1)), self.linalg.size(y, rank - 1)]
        filled = self.linalg.fill(self.linalg.constant_scalar(0, element), self.linalg.empty(sizes, element))
        *batch, rows, columns, inner = range(rank + 1)
        axes = ([*batch, rows, inner], [*batch, inner, columns], [*batch, rows, columns])
        attributes = {
            "indexing_maps": self.linalg.affine_maps([self.linalg.select_axes(rank + 1, axis) for axis in axes]),
            "operandSegmentSizes": self.segments(2, 1),
        }

        def body(emit: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
            a, b, total = elements
            return [_scalar(emit, "add", [total, _scalar(emit, "mul", [a, b], element)], element)]

        return self.linalg.structured("matmul" if rank == 2 else "batch_matmul", [x, y], [filled], body, attributes)[0]


def _scalar(emit: LinalgOps, name: str, operands: Sequence[ir.Value], result: ir.Type) -> ir.Value:
    """Emit the operation ``name`` on scalars."""
    element = operands[-1].type
    kind = 2 if str(element) == "i1" else 1 if isinstance(element, ir.IntegerType) else 0
    match name:
        case "cast":
            return _cast(emit, operands[0], result)
        case "reciprocal":
            return emit.value("arith.divf", element, emit.constant_scalar(1, element), *operands)
        case "sigmoid":
            one = emit.constant_scalar(1, element)
            power = emit.value("math.exp", element, emit.value("arith.negf", element, *operands))
            return emit.value("arith.divf", element, one, emit.value("arith.addf", element, power, one))
        case "logical_not":
            return emit.value("arith.xori", element, *operands, emit.constant_scalar(1, emit.type("i1")))
        case "equal" | "greater" | "greater_equal":
            compare = emit.compare_integers if kind else emit.compare_floats
            return compare(_PREDICATES[name][kind], *operands)
    table = (_FLOAT, _INTEGER, _BOOL)[kind]
    if name not in table:
        raise CannotEmit(f"linalg has no {name} of {element}")
    return emit.value(table[name], element, *operands)


def _cast(emit: LinalgOps, x: ir.Value, new: ir.Type) -> ir.Value:
    """Emit the conversion of a scalar."""
    old, to = (_TYPE.fullmatch(str(type_)) for type_ in (x.type, new))
    if old is None or to is None:
        raise CannotEmit(f"linalg has no cast of {x.type} to {new}")
    change = int(to["bits"]) - int(old["bits"])
    unsigned = str(x.type) == "i1"
    match old["kind"] == "i", to["kind"] == "i":
        case (True, True):
            name = "trunci" if change <= 0 else "extui" if unsigned else "extsi"
        case (True, False):
            name = "uitofp" if unsigned else "sitofp"
        case (False, True):
            name = "fptosi"
        case _ if change == 0:  # f16 and bf16
            return emit.value("arith.truncf", new, emit.value("arith.extf", "f32", x))
        case _:
            name = "extf" if change > 0 else "truncf"
    return emit.value(f"arith.{name}", new, x)
