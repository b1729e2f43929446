"""Emitter of TOSA for users' lowerings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from fx_importer.lowerings.constants import CannotEmit
from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.tosa import TosaOps

_REDUCTIONS = {"sum": "reduce_sum", "amax": "reduce_max", "amin": "reduce_min"}


class TosaEmitter(TargetEmitter):
    """Emits TOSA. Divisions become multiplications with reciprocals, and square roots powers: TOSA lacks both."""

    @cached_property
    def tosa(self) -> TosaOps:
        """Emits TOSA at the same point."""
        return self.using(TosaOps)

    def _constant(self, value: ir.Attribute, kind: ir.Type) -> ir.Value:
        return self.tosa.const(value)

    def _map(self, name: str, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
        rank = len(self.shape(kind))
        operands = [self._of_rank(operand, rank) for operand in operands]
        match name:
            case "mul":
                shift = self.constant_i8(0)
                return self.value("tosa.mul", kind, *operands, shift)
            case "div" if self.is_float(operands[0]):
                return self.mul(operands[0], self.value("tosa.reciprocal", operands[1].type, operands[1]))
            case "div":
                return self.value("tosa.intdiv", kind, *operands)
            case "sqrt":
                return self.pow(operands[0], 0.5)
            case "cast":
                return self._cast(operands[0], kind)
        return self.value(f"tosa.{name}", kind, *operands)

    def constant_i8(self, value: int) -> ir.Value:
        """Emit a constant for a shift or an integer zero point, a ``tensor<1xi8>``."""
        kind = self.type("tensor<1xi8>")
        return self._constant(ir.Attribute.parse(f"dense<{value}> : {kind}", self.context), kind)

    def _cast(self, x: ir.Value, kind: ir.Type) -> ir.Value:
        element = self.element(kind)
        if self.is_float(x) and element.startswith("i"):  # tosa.cast rounds to the nearest
            x = self.select(self.greater_equal(x, 0.0), self.floor(x), self.ceil(x))
        elif self.element(x) == "i1" and not element.startswith("i"):
            x = self.value("tosa.cast", self.tensor(self.shape(x), "i8"), x)
        return self.value("tosa.cast", kind, x)

    def _of_rank(self, x: ir.Value, rank: int) -> ir.Value:
        """Return ``x`` with leading axes of size 1, since operands must have equal ranks."""
        missing = rank - len(self.shape(x))
        if not missing:
            return x
        return self._reshape(x, self.tensor((1,) * missing + self.shape(x), self.element(x)))

    def _reshape(self, x: ir.Value, kind: ir.Type) -> ir.Value:
        sizes = [-1 if size is None else size for size in self.shape(kind)]
        if sizes.count(-1) > 1:
            raise CannotEmit(f"TOSA cannot reshape to {kind}: it has more than one dynamic size")
        return self.value("tosa.reshape", kind, x, self.tosa.const_shape(sizes))

    def _transpose(self, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        perms = ir.DenseI32ArrayAttr.get(list(axes), self.context)
        return self.op("tosa.transpose", [kind], [x], {"perms": perms}).result

    def _broadcast(self, x: ir.Value, like: ir.Value, kind: ir.Type) -> ir.Value:
        sizes = self.shape(kind)
        x = self._of_rank(x, len(sizes))
        if None not in sizes:
            multiples = [1 if old == new else new or 0 for old, new in zip(self.shape(x), sizes, strict=True)]
            return self.value("tosa.tile", kind, x, self.tosa.const_shape(multiples))
        if self.element(x) != self.element(like):
            raise CannotEmit(f"TOSA cannot broadcast to {kind} beside a tensor of another element type")
        return self.select(self.constant(True), x, like)

    def _concat(self, tensors: Sequence[ir.Value], axis: int, kind: ir.Type) -> ir.Value:
        return self.op("tosa.concat", [kind], tensors, {"axis": self._axis(axis)}).result

    def _slice(self, x: ir.Value, starts: Sequence[int], kind: ir.Type) -> ir.Value:
        sizes = [-1 if size is None else size for size in self.shape(kind)]
        return self.value("tosa.slice", kind, x, self.tosa.const_shape(starts), self.tosa.const_shape(sizes))

    def _reduce(self, name: str, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        for axis in axes:  # one axis at a time, which is kept with size 1
            sizes = list(self.shape(x))
            sizes[axis] = 1
            one = self.tensor(sizes, self.element(x))
            x = self.op(f"tosa.{_REDUCTIONS[name]}", [one], [x], {"axis": self._axis(axis)}).result
        return x if x.type == kind else self._reshape(x, kind)

    def _matmul(self, x: ir.Value, y: ir.Value, kind: ir.Type) -> ir.Value:
        element = self.element(x)
        if not self.is_float(x):
            raise CannotEmit(f"TOSA has no product of matrices of {element} as torch has it: cast to f32")
        batch = len(self.shape(kind)) == 3
        x, y = (operand if batch else self._of_rank(operand, 3) for operand in (x, y))
        zero = ir.Attribute.parse(f"dense<0.0> : tensor<1x{element}>", self.context)
        zeros = [self._constant(zero, self.tensor((1,), element)) for _ in range(2)]
        full = kind if batch else self.tensor((1, *self.shape(kind)), element)
        product = self.value("tosa.matmul", full, x, y, *zeros)
        return product if batch else self._reshape(product, kind)

    def _axis(self, axis: int) -> ir.Attribute:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32, self.context), axis)
