"""Emitter of linalg, tensor, arith and math for users' lowerings."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.lowerings.module_builder import CannotEmit, extreme, product
from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.mlir.bindings import ir

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
    "equal": "arith.cmpf oeq,",
    "greater": "arith.cmpf ogt,",
    "greater_equal": "arith.cmpf oge,",
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
    "equal": "arith.cmpi eq,",
    "greater": "arith.cmpi sgt,",
    "greater_equal": "arith.cmpi sge,",
    "logical_and": "arith.andi",
    "logical_or": "arith.ori",
    "select": "arith.select",
}
_BOOL = {
    "maximum": "arith.ori",
    "minimum": "arith.andi",
    "mul": "arith.andi",
    "add": "arith.ori",
    "greater": "arith.cmpi ugt,",
    "greater_equal": "arith.cmpi uge,",
}
_REDUCTIONS = {"sum": "add", "amax": "maximum", "amin": "minimum"}


class LinalgEmitter(TargetEmitter):
    """Emits elementwise operations as ``linalg.generic`` with arith and math, and data movement as ``tensor``."""

    def _constant(self, value: ir.Attribute, kind: ir.Type) -> ir.Value:
        return self.op("arith.constant", [kind], (), {"value": value}).result

    def _map(self, name: str, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
        body = _body(name, [self.element(each) for each in operands], self.element(kind))
        return self._generic(operands, kind, body)

    def _generic(self, operands: Sequence[ir.Value], kind: ir.Type, body: str, result: str = "%r") -> ir.Value:
        """Emit an elementwise operation: ``body`` computes ``result`` from ``%x0``, ``%x1`` and so on."""
        shape = self.shape(kind)
        rank = len(shape)
        axes = ", ".join(f"d{axis}" for axis in range(rank))
        read = []
        for each in operands:
            sizes = self.shape(each)
            read.append(", ".join("0" if size == 1 else f"d{rank - len(sizes) + i}" for i, size in enumerate(sizes)))
        maps = ", ".join(f"affine_map<({axes}) -> ({each})>" for each in (*read, axes))
        iterators = ", ".join(['"parallel"'] * rank)
        dims: list[str] = []
        names: list[str] = []
        for axis in (axis for axis, size in enumerate(shape) if size is None):
            position, inner = self._operand_with_size(axis - rank, operands)
            dims += [f"%i{axis} = arith.constant {inner} : index"]
            dims += [f"%d{axis} = tensor.dim %a{position}, %i{axis} : {operands[position].type}"]
            names += [f"%d{axis}"]
        # An operand may have dynamic sizes where another has static ones.
        inputs, types = ", ".join(f"%a{i}" for i in range(len(operands))), ", ".join(str(x.type) for x in operands)
        scalars = [f"%x{i}: {self.element(each)}" for i, each in enumerate(operands)]
        ins = f"ins({inputs} : {types}) " if operands else ""
        return self._inlined(
            f"""{chr(10).join(dims)}
            %e = tensor.empty({", ".join(names)}) : {kind}
            %g = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} {ins}outs(%e : {kind}) {{
            ^bb0({", ".join((*scalars, f"%o: {self.element(kind)}"))}):
              {body}
              linalg.yield {result} : {self.element(kind)}
            }} -> {kind}""",
            kind,
            *operands,
        )

    def _operand_with_size(self, axis: int, operands: Sequence[ir.Value]) -> tuple[int, int]:
        """Return the operand with the dynamic size of the result's ``axis``, which is negative, and the axis in it."""
        for position, each in enumerate(operands):
            sizes = self.shape(each)
            if len(sizes) >= -axis and sizes[axis] is None:
                return position, len(sizes) + axis
        raise AssertionError("a dynamic size comes from an operand")

    def _reshape(self, x: ir.Value, kind: ir.Type) -> ir.Value:
        old, new = self.shape(x), self.shape(kind)
        if new.count(None) > 1:
            raise CannotEmit(f"{kind} has more than one dynamic size: use inline")
        flat = x
        total = None if None in old else product(old)
        line = self.tensor((total,), self.element(x))
        if len(old) != 1:
            how = (
                "tensor.expand_shape %a0 [] output_shape [1]"
                if not old
                else f"tensor.collapse_shape %a0 [{list(range(len(old)))}]"
            )
            flat = self._inlined(f"%g = {how} : {x.type} into {line}", line, x)
        if len(new) == 1:
            return flat
        if not new:
            return self._inlined(f"%g = tensor.collapse_shape %a0 [] : {line} into {kind}", kind, flat)
        known = product([size for size in new if size is not None])
        rest = ""
        if None in new:
            rest = f"""%i = arith.constant 0 : index
            %n = tensor.dim %a0, %i : {line}
            %k = arith.constant {known} : index
            %d = arith.divui %n, %k : index"""
        sizes = ", ".join("%d" if size is None else str(size) for size in new)
        expand = f"%g = tensor.expand_shape %a0 [{list(range(len(new)))}] output_shape [{sizes}] : {line} into {kind}"
        return self._inlined(f"{rest}\n{expand}", kind, flat)

    def _transpose(self, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        dims, names = self._dims([axes[i] for i, size in enumerate(self.shape(kind)) if size is None], x)
        return self._inlined(
            f"""{dims}
            %e = tensor.empty({names}) : {kind}
            %g = linalg.transpose ins(%a0 : {x.type}) outs(%e : {kind}) permutation = {list(axes)}""",
            kind,
            x,
        )

    def _broadcast(self, x: ir.Value, like: ir.Value, kind: ir.Type) -> ir.Value:
        return self._generic((x, like), kind, "", "%x0")

    def _concat(self, tensors: Sequence[ir.Value], axis: int, kind: ir.Type) -> ir.Value:
        inputs, types = ", ".join(f"%a{i}" for i in range(len(tensors))), ", ".join(str(x.type) for x in tensors)
        return self._inlined(f"%g = tensor.concat dim({axis}) {inputs} : ({types}) -> {kind}", kind, *tensors)

    def _slice(self, x: ir.Value, starts: Sequence[int], kind: ir.Type) -> ir.Value:
        sizes, ones = [size or 0 for size in self.shape(kind)], [1] * len(starts)
        text = f"%g = tensor.extract_slice %a0{list(starts)} {sizes} {ones} : {x.type} to {kind}"
        return self._inlined(text, kind, x)

    def _reduce(self, name: str, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        element, shape = self.element(x), self.shape(x)
        left = self.tensor([size for axis, size in enumerate(shape) if axis not in axes], element)
        start = self.constant(0 if name == "sum" else extreme(element, least=name == "amax"), element)
        dims, names = self._dims([axis for axis, size in enumerate(shape) if size is None and axis not in axes], x)
        reduced = self._inlined(
            f"""{dims}
            %s = tensor.extract %a1[] : {start.type}
            %e = tensor.empty({names}) : {left}
            %f = linalg.fill ins(%s : {element}) outs(%e : {left}) -> {left}
            %g = linalg.reduce ins(%a0 : {x.type}) outs(%f : {left}) dimensions = {list(axes)}
            (%x0: {element}, %x1: {element}) {{
              {_body(_REDUCTIONS[name], [element, element], element)}
              linalg.yield %r : {element}
            }}""",
            left,
            x,
            start,
        )
        return reduced if left == kind else self._reshape(reduced, kind)

    def _matmul(self, x: ir.Value, y: ir.Value, kind: ir.Type) -> ir.Value:
        rank, element = len(self.shape(kind)), self.element(kind)
        zero = self.constant(0, element)
        dims, names = self._dims([axis for axis in range(rank - 1) if self.shape(kind)[axis] is None], x)
        if self.shape(kind)[-1] is None:
            more, last = self._dims([rank - 1], y, of=1)
            dims, names = f"{dims}\n{more}", ", ".join(filter(None, (names, last)))
        op = "linalg.matmul" if rank == 2 else "linalg.batch_matmul"
        return self._inlined(
            f"""{dims}
            %s = tensor.extract %a2[] : {zero.type}
            %e = tensor.empty({names}) : {kind}
            %f = linalg.fill ins(%s : {element}) outs(%e : {kind}) -> {kind}
            %g = {op} ins(%a0, %a1 : {x.type}, {y.type}) outs(%f : {kind}) -> {kind}""",
            kind,
            x,
            y,
            zero,
        )

    def _dims(self, axes: Sequence[int], x: ir.Value, of: int = 0) -> tuple[str, str]:
        """Return text that computes the sizes of operand ``of``, which is ``x``, along ``axes``, and their names."""
        lines = [
            f"%i{of}{axis} = arith.constant {axis} : index\n%d{of}{axis} = tensor.dim %a{of}, %i{of}{axis} : {x.type}"
            for axis in axes
        ]
        return "\n".join(lines), ", ".join(f"%d{of}{axis}" for axis in axes)

    def _inlined(self, text: str, kind: ir.Type, *operands: ir.Value) -> ir.Value:
        """Emit operations from text, with operands ``%a0``, ``%a1`` and so on, and result ``%g``."""
        arguments = ", ".join(f"%a{i}: {each.type}" for i, each in enumerate(operands))
        return self.inline(f"func.func @f({arguments}) -> {kind} {{\n{text}\nreturn %g : {kind}\n}}", *operands)[0]


def _body(name: str, elements: Sequence[str], result: str) -> str:
    """Return text that computes ``%r`` from ``%x0``, ``%x1`` and so on."""
    element = elements[-1]
    floating = not element.startswith("i")
    given = ", ".join(f"%x{i}" for i in range(len(elements)))
    match name:
        case "cast":
            return _cast(element, result)
        case "reciprocal":
            return f"%y = arith.constant 1.0 : {element}\n%r = arith.divf %y, %x0 : {element}"
        case "sigmoid":
            return f"""%y = arith.constant 1.0 : {element}
            %n = arith.negf %x0 : {element}
            %p = math.exp %n : {element}
            %q = arith.addf %p, %y : {element}
            %r = arith.divf %y, %q : {element}"""
        case "logical_not":
            return "%y = arith.constant true\n%r = arith.xori %x0, %y : i1"
    table = _FLOAT if floating else {**_INTEGER, **_BOOL} if element == "i1" else _INTEGER
    if name not in table:
        raise CannotEmit(f"linalg has no {name} of {element}")
    return f"%r = {table[name]} {given} : {element}"


def _cast(old: str, new: str) -> str:
    """Return text that converts ``%x0`` to ``%r``."""
    integers = old.startswith("i"), new.startswith("i")
    wider = _bits(new) > _bits(old)
    match integers:
        case (True, True):
            op = ("arith.extui" if old == "i1" else "arith.extsi") if wider else "arith.trunci"
        case (True, False):
            op = "arith.uitofp" if old == "i1" else "arith.sitofp"
        case (False, True):
            op = "arith.fptosi"
        case _ if _bits(old) == _bits(new):  # f16 and bf16
            return f"%y = arith.extf %x0 : {old} to f32\n%r = arith.truncf %y : f32 to {new}"
        case _:
            op = "arith.extf" if wider else "arith.truncf"
    return f"%r = {op} %x0 : {old} to {new}"


def _bits(element: str) -> int:
    return int(element.lstrip("bfi"))
