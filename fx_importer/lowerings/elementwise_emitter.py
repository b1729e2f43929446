"""Elementwise operations of `TargetEmitter`: arithmetic, comparisons, selection and casts."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.lowerings.emitter_base import EmitterBase, Operand
from fx_importer.lowerings.module_builder import CannotEmit, Number
from fx_importer.mlir.bindings import ir


class ElementwiseEmitter(EmitterBase):
    """Emits elementwise operations, whose operands broadcast."""

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def add(self, x: Operand, y: Operand) -> ir.Value:
        """``x + y``"""
        return self._elementwise("add", (x, y))

    def sub(self, x: Operand, y: Operand) -> ir.Value:
        """``x - y``"""
        return self._elementwise("sub", (x, y))

    def mul(self, x: Operand, y: Operand) -> ir.Value:
        """``x * y``"""
        return self._elementwise("mul", (x, y))

    def div(self, x: Operand, y: Operand) -> ir.Value:
        """``x / y``; for integers, truncated."""
        return self._elementwise("div", (x, y))

    def pow(self, x: Operand, y: Operand) -> ir.Value:
        """``x ** y``, for floating point only."""
        return self._elementwise("pow", self._floats((x, y), "pow"))

    def maximum(self, x: Operand, y: Operand) -> ir.Value:
        """The larger operand; NaN if one is NaN."""
        return self._elementwise("maximum", (x, y))

    def minimum(self, x: Operand, y: Operand) -> ir.Value:
        """The smaller operand; NaN if one is NaN."""
        return self._elementwise("minimum", (x, y))

    def clamp(self, x: ir.Value, least: Number | None = None, greatest: Number | None = None) -> ir.Value:
        """``x`` clamped to optional bounds."""
        x = x if least is None else self.maximum(x, least)
        return x if greatest is None else self.minimum(x, greatest)

    def neg(self, x: ir.Value) -> ir.Value:
        """``-x``"""
        return self.sub(0, x) if not self.is_float(x) else self.mul(x, -1.0)

    def abs(self, x: ir.Value) -> ir.Value:
        """``|x|``"""
        return self._elementwise("abs", (x,))

    def relu(self, x: ir.Value) -> ir.Value:
        """``max(x, 0)``"""
        return self.maximum(x, 0)

    def sigmoid(self, x: ir.Value) -> ir.Value:
        """``1 / (1 + exp(-x))``"""
        return self._elementwise("sigmoid", self._floats((x,), "sigmoid"))

    def exp(self, x: ir.Value) -> ir.Value:
        """``e ** x``"""
        return self._floating("exp", x)

    def log(self, x: ir.Value) -> ir.Value:
        """The natural logarithm."""
        return self._floating("log", x)

    def sqrt(self, x: ir.Value) -> ir.Value:
        """The square root."""
        return self._floating("sqrt", x)

    def rsqrt(self, x: ir.Value) -> ir.Value:
        """``1 / sqrt(x)``"""
        return self._floating("rsqrt", x)

    def reciprocal(self, x: ir.Value) -> ir.Value:
        """``1 / x``"""
        return self._floating("reciprocal", x)

    def tanh(self, x: ir.Value) -> ir.Value:
        """The hyperbolic tangent."""
        return self._floating("tanh", x)

    def erf(self, x: ir.Value) -> ir.Value:
        """The error function."""
        return self._floating("erf", x)

    def sin(self, x: ir.Value) -> ir.Value:
        """The sine."""
        return self._floating("sin", x)

    def cos(self, x: ir.Value) -> ir.Value:
        """The cosine."""
        return self._floating("cos", x)

    def floor(self, x: ir.Value) -> ir.Value:
        """The largest integer not above ``x``."""
        return self._floating("floor", x)

    def ceil(self, x: ir.Value) -> ir.Value:
        """The smallest integer not below ``x``."""
        return self._floating("ceil", x)

    def _floating(self, name: str, x: ir.Value) -> ir.Value:
        return self._elementwise(name, self._floats((x,), name))

    def _floats(self, operands: Sequence[Operand], name: str) -> Sequence[Operand]:
        for each in operands:
            if isinstance(each, ir.Value) and not self.is_float(each):
                raise CannotEmit(f"{name} takes floating-point elements, not {self.element(each)}: cast the operand")
        return operands

    # --- comparisons and bools --------------------------------------------------------------------------------------

    def equal(self, x: Operand, y: Operand) -> ir.Value:
        """``x == y``"""
        return self._elementwise("equal", (x, y), "i1")

    def greater(self, x: Operand, y: Operand) -> ir.Value:
        """``x > y``"""
        return self._elementwise("greater", (x, y), "i1")

    def greater_equal(self, x: Operand, y: Operand) -> ir.Value:
        """``x >= y``"""
        return self._elementwise("greater_equal", (x, y), "i1")

    def less(self, x: Operand, y: Operand) -> ir.Value:
        """``x < y``"""
        return self.greater(y, x)

    def less_equal(self, x: Operand, y: Operand) -> ir.Value:
        """``x <= y``"""
        return self.greater_equal(y, x)

    def logical_and(self, x: Operand, y: Operand) -> ir.Value:
        """Logical and of bools."""
        return self._elementwise("logical_and", (x, y))

    def logical_or(self, x: Operand, y: Operand) -> ir.Value:
        """Logical or of bools."""
        return self._elementwise("logical_or", (x, y))

    def logical_not(self, x: ir.Value) -> ir.Value:
        """Logical negation of bools."""
        return self._elementwise("logical_not", (x,))

    def select(self, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
        """``x`` where ``condition``, a tensor of bools, is true; else ``y``."""
        x, y = self._operands((x, y))
        kind = self.tensor(self._broadcast_shape((condition, x, y)), self.element(x))
        return self._map("select", (condition, x, y), kind)

    def cast(self, x: ir.Value, element: str) -> ir.Value:
        """``x`` with another element type. Floats are truncated to integers; ``i1`` is true where ``x`` is not zero."""
        if self.element(x) == element:
            return x
        if element == "i1":
            return self.logical_not(self.equal(x, 0))
        return self._map("cast", (x,), self.tensor(self.shape(x), element))
