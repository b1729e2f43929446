"""Emitter of StableHLO for users' lowerings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from fx_importer.lowerings.constants import CannotEmit, extreme
from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.stablehlo import StablehloOps

_NAMES = {
    "sub": "stablehlo.subtract",
    "mul": "stablehlo.multiply",
    "div": "stablehlo.divide",
    "pow": "stablehlo.power",
    "sigmoid": "stablehlo.logistic",
    "exp": "stablehlo.exponential",
    "sin": "stablehlo.sine",
    "cos": "stablehlo.cosine",
    "erf": "chlo.erf",
    "logical_and": "stablehlo.and",
    "logical_or": "stablehlo.or",
    "logical_not": "stablehlo.not",
    "cast": "stablehlo.convert",
}
"""Names of StableHLO operations that differ from those of the emitter."""
_DIRECTIONS = {"equal": "EQ", "greater": "GT", "greater_equal": "GE"}
_REDUCTIONS = {"sum": "add", "amax": "maximum", "amin": "minimum"}


class StablehloEmitter(TargetEmitter):
    """Emits StableHLO. Operands of elementwise operations are broadcast first."""

    @cached_property
    def stablehlo(self) -> StablehloOps:
        """Emits StableHLO at the same point."""
        return self.using(StablehloOps)

    def _constant(self, value: ir.Attribute, kind: ir.Type) -> ir.Value:
        return self.stablehlo.const(value)

    def _map(self, name: str, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
        shape = self.shape(kind)
        operands = [self._broadcast_to(operand, operands, shape) for operand in operands]
        if name == "reciprocal":
            return self.div(self.constant(1.0, self.element(kind)), operands[0])
        if direction := _DIRECTIONS.get(name):
            return self.stablehlo.compare(direction, operands[0], operands[1])
        return self.value(_NAMES.get(name, f"stablehlo.{name}"), kind, *operands)

    def _broadcast_to(self, x: ir.Value, operands: Sequence[ir.Value], shape: Sequence[int | None]) -> ir.Value:
        """Return ``x`` broadcast to ``shape``, the common shape of ``operands``."""
        kind = self.tensor(shape, self.element(x))
        old = self.shape(x)
        if x.type == kind or (all(size is None for size in shape) and old == tuple(shape)):
            return x
        dims = ir.DenseI64ArrayAttr.get(list(range(len(shape) - len(old), len(shape))), self.context)
        if None not in shape:
            return self.op("stablehlo.broadcast_in_dim", [kind], [x], {"broadcast_dimensions": dims}).result
        sizes = [self._size_of(axis - len(shape), operands) for axis in range(len(shape))]
        shaped = [x, self._concat(sizes, 0, self.tensor((len(shape),), "i32"))]
        return self.op("stablehlo.dynamic_broadcast_in_dim", [kind], shaped, {"broadcast_dimensions": dims}).result

    def _size_of(self, axis: int, tensors: Sequence[ir.Value]) -> ir.Value:
        """Return the common size of ``tensors`` along the negative ``axis``, as ``tensor<1xi32>``."""
        there = [(tensor, self.shape(tensor)[axis]) for tensor in tensors if len(self.shape(tensor)) >= -axis]
        known = {size for _, size in there if size not in (1, None)}
        unknown = [dim for dim, size in there if size is None]
        if known or not unknown:
            return self._sizes([known.pop() if known else 1])
        return self._dimension(unknown[0], len(self.shape(unknown[0])) + axis)

    def _dimension(self, x: ir.Value, axis: int) -> ir.Value:
        """Emit the size of ``x`` along ``axis``, as ``tensor<1xi32>``."""
        return self.value("stablehlo.reshape", "tensor<1xi32>", self.stablehlo.dimension_size(x, axis))

    def _sizes(self, sizes: Sequence[int]) -> ir.Value:
        kind = self.tensor((len(sizes),), "i32")
        return self._constant(ir.Attribute.parse(f"dense<{list(sizes)}> : {kind}", self.context), kind)

    def _reshape(self, x: ir.Value, kind: ir.Type) -> ir.Value:
        shape = self.shape(kind)
        if None not in shape:
            return self.value("stablehlo.reshape", kind, x)
        if shape.count(None) > 1:
            raise CannotEmit(f"{kind} has more than one dynamic size: use inline")
        rest = self._sizes([1])
        for axis, size in enumerate(self.shape(x)):
            one = self._dimension(x, axis) if size is None else self._sizes([size])
            rest = self.value("stablehlo.multiply", "tensor<1xi32>", rest, one)
        known = 1
        for size in shape:
            known *= 1 if size is None else size
        rest = self.value("stablehlo.divide", "tensor<1xi32>", rest, self._sizes([known]))
        sizes = [rest if size is None else self._sizes([size]) for size in shape]
        return self.value(
            "stablehlo.dynamic_reshape", kind, x, self._concat(sizes, 0, self.tensor((len(shape),), "i32"))
        )

    def _transpose(self, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        permutation = ir.DenseI64ArrayAttr.get(list(axes), self.context)
        return self.op("stablehlo.transpose", [kind], [x], {"permutation": permutation}).result

    def _broadcast(self, x: ir.Value, like: ir.Value, kind: ir.Type) -> ir.Value:
        return self._broadcast_to(x, (x, like), self.shape(kind))

    def _concat(self, tensors: Sequence[ir.Value], axis: int, kind: ir.Type) -> ir.Value:
        return self.stablehlo.concatenate(tensors, axis, kind)

    def _slice(self, x: ir.Value, starts: Sequence[int], kind: ir.Type) -> ir.Value:
        ends = [start + (size or 0) for start, size in zip(starts, self.shape(kind), strict=True)]
        bounds = {"start_indices": starts, "limit_indices": ends, "strides": [1] * len(ends)}
        return self.op(
            "stablehlo.slice", [kind], [x], {name: self.array(bound) for name, bound in bounds.items()}
        ).result

    def _reduce(self, name: str, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        element = self.element(x)
        left = self.tensor([size for axis, size in enumerate(self.shape(x)) if axis not in axes], element)
        start = self.constant(0 if name == "sum" else extreme(element, least=name == "amax"), element)
        made = self.op("stablehlo.reduce", [left], [x, start], {"dimensions": self.array(axes)}, regions=1)
        self.stablehlo.fill_region(
            made.regions[0], [start.type] * 2, lambda emit, a, b: [emit.stablehlo(_REDUCTIONS[name], a.type, a, b)]
        )
        return made.result if left == kind else self._reshape(made.result, kind)

    def _matmul(self, x: ir.Value, y: ir.Value, kind: ir.Type) -> ir.Value:
        batch = len(self.shape(x)) - 2
        numbers = stablehlo_d.DotDimensionNumbers.get(
            lhs_batching_dimensions=list(range(batch)),
            rhs_batching_dimensions=list(range(batch)),
            lhs_contracting_dimensions=[batch + 1],
            rhs_contracting_dimensions=[batch],
            context=self.context,
        )
        return self.op("stablehlo.dot_general", [kind], [x, y], {"dot_dimension_numbers": numbers}).result
