"""Elementwise operations of `TargetEmitter`: constants, arithmetic, comparisons, selection and casts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import torch

from fx_importer.lowerings.constants import CannotEmit, Number, dense_attribute
from fx_importer.lowerings.emitted_operations import EmittedOperations, error_text
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, Shape
from fx_importer.rewrites.torch.region_types import TypeConverter

Operand: TypeAlias = ir.Value | Number


class ElementwiseEmitter(Emitter, ABC):
    """Emits elementwise operations, whose operands broadcast. Subclasses implement a target.

    Emitters of dialects are members: they emit at the same point, and their operations are recorded too.
    """

    def __init__(
        self,
        point: ir.InsertionPoint,
        location: ir.Location,
        results: Sequence[ir.Type] = (),
        *,
        created: Callable[[ir.Operation], None] | None = None,
    ):
        self.emitted = EmittedOperations()
        super().__init__(point, location, created=created or self.emitted.add)
        self.results = tuple(results)
        """The types of the results of the operator, by its fake implementation."""

    @cached_property
    def torch(self) -> TypeConverter:
        """Converts between torch tensors and builtin ones at the same point."""
        return self.using(TypeConverter)

    # --- any operation ----------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        results: Sequence[ir.Type | str],
        operands: Sequence[ir.Value] = (),
        attributes: Mapping[str, ir.Attribute] | None = None,
        *,
        regions: int = 0,
    ) -> ir.Operation:
        """Emit the operation ``name``. Raises `CannotEmit` if it is invalid."""
        try:
            return super().op(name, results, operands, attributes, regions=regions)
        except ir.MLIRError as error:
            raise CannotEmit(error_text(error)) from None

    def inline(self, text: str, *operands: ir.Value) -> list[ir.Value]:
        """Inline a function, given as MLIR text, on ``operands``; return its results.

        Raises:
            CannotEmit: if the text is not a function, or one with other argument types.
        """
        return self.emitted.inline(self, text, operands)

    @staticmethod
    def is_float(x: ir.Value) -> bool:
        """Whether the elements of ``x`` are floating-point numbers."""
        return bool(re.match(r"b?f\d", Emitter.element(x)))

    # --- operands ---------------------------------------------------------------------------------------------------

    def constant(self, value: torch.Tensor | Number, element: str | None = None) -> ir.Value:
        """Emit a constant: a tensor, or a number as a tensor of rank 0, converted to ``element`` if given."""
        dense = dense_attribute(self.context, value, element)
        return self._constant(dense, dense.type)

    def _operands(self, operands: Sequence[Operand]) -> list[ir.Value]:
        """Return operands of one element type: numbers become constants with the element type of the first tensor."""
        tensors = [operand for operand in operands if isinstance(operand, ir.Value)]
        if not tensors:
            raise CannotEmit("one of the operands has to be a tensor")
        element = self.element(tensors[0])
        if other := [tensor for tensor in tensors if self.element(tensor) != element]:
            raise CannotEmit(f"operands of {element} and {self.element(other[0])}: cast one of them")
        return [operand if isinstance(operand, ir.Value) else self.constant(operand, element) for operand in operands]

    def _broadcast_shape(self, tensors: Sequence[ir.Value]) -> Shape:
        shapes = [self.shape(tensor) for tensor in tensors]
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        result: list[int | None] = []
        for sizes in zip(*padded, strict=True):
            known = {size for size in sizes if size not in (1, None)}
            if len(known) > 1:
                raise CannotEmit(f"shapes {', '.join(str(list(shape)) for shape in shapes)} do not broadcast")
            result.append(known.pop() if known else None if None in sizes else 1)
        return tuple(result)

    def _elementwise(self, name: str, operands: Sequence[Operand], element: str | None = None) -> ir.Value:
        tensors = self._operands(operands)
        kind = self.tensor(self._broadcast_shape(tensors), element or self.element(tensors[0]))
        return self._map(name, tensors, kind)

    @abstractmethod
    def _constant(self, value: ir.Attribute, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _map(self, name: str, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
        """Emit an elementwise operation; its operands broadcast to ``kind``."""

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
        for operand in operands:
            if isinstance(operand, ir.Value) and not self.is_float(operand):
                raise CannotEmit(f"{name} takes floating-point elements, not {self.element(operand)}: cast the operand")
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
