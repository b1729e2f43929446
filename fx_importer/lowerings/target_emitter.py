"""What a rule in Python says in a target's dialect: one vocabulary, whatever the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import torch

from fx_importer.lowerings.module_builder import Builder, CannotEmit, Number, Shape, product
from fx_importer.mlir.bindings import ir

Operand: TypeAlias = ir.Value | Number


class TargetEmitter(Builder, ABC):
    """Emits operations of a target. Tensors are builtin tensors; where one is taken, a Python number will do.

    Shapes broadcast as torch's do. A size that is not known is taken for other than 1. What is not in the vocabulary is
    there by `op`, which emits any operation, and `inline`, which takes MLIR's own text.
    """

    def __init__(self, point: ir.InsertionPoint, location: ir.Location, results: Sequence[ir.Type] = ()):
        super().__init__(point, location)
        self.results = tuple(results)
        """The types of what the operator returns, as its fake implementation has them."""

    # --- constants --------------------------------------------------------------------------------------------------

    def constant(self, value: torch.Tensor | Number, element: str | None = None) -> ir.Value:
        """Emit a constant: a tensor, or a number as a tensor of rank 0, of ``element`` where it is given."""
        dense = self.dense(value, element)
        return self._constant(dense, dense.type)

    def _operands(self, operands: Sequence[Operand]) -> list[ir.Value]:
        """Return operands of one element type: a number takes that of the first tensor."""
        tensors = [each for each in operands if isinstance(each, ir.Value)]
        if not tensors:
            raise CannotEmit("one of the operands has to be a tensor")
        element = self.element(tensors[0])
        if other := [each for each in tensors if self.element(each) != element]:
            raise CannotEmit(f"operands of {element} and {self.element(other[0])}: cast one of them")
        return [each if isinstance(each, ir.Value) else self.constant(each, element) for each in operands]

    def _broadcast_shape(self, tensors: Sequence[ir.Value]) -> Shape:
        shapes = [self.shape(each) for each in tensors]
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        result: list[int | None] = []
        for sizes in zip(*padded, strict=True):
            known = {size for size in sizes if size not in (1, None)}
            if len(known) > 1:
                raise CannotEmit(f"shapes {', '.join(str(list(each)) for each in shapes)} do not broadcast")
            result.append(known.pop() if known else None if None in sizes else 1)
        return tuple(result)

    def _elementwise(self, name: str, operands: Sequence[Operand], element: str | None = None) -> ir.Value:
        tensors = self._operands(operands)
        kind = self.tensor(self._broadcast_shape(tensors), element or self.element(tensors[0]))
        return self._map(name, tensors, kind)

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
        """``x / y``; of integers, rounded towards zero."""
        return self._elementwise("div", (x, y))

    def pow(self, x: Operand, y: Operand) -> ir.Value:
        """``x ** y``, of floating point."""
        return self._elementwise("pow", self._floats((x, y), "pow"))

    def maximum(self, x: Operand, y: Operand) -> ir.Value:
        """The larger one; NaN if one is."""
        return self._elementwise("maximum", (x, y))

    def minimum(self, x: Operand, y: Operand) -> ir.Value:
        """The smaller one; NaN if one is."""
        return self._elementwise("minimum", (x, y))

    def clamp(self, x: ir.Value, least: Number | None = None, greatest: Number | None = None) -> ir.Value:
        """``x`` within bounds, each of which may be left out."""
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
        """The largest whole number that is not larger."""
        return self._floating("floor", x)

    def ceil(self, x: ir.Value) -> ir.Value:
        """The smallest whole number that is not smaller."""
        return self._floating("ceil", x)

    def _floating(self, name: str, x: ir.Value) -> ir.Value:
        return self._elementwise(name, self._floats((x,), name))

    def _floats(self, operands: Sequence[Operand], name: str) -> Sequence[Operand]:
        for each in operands:
            if isinstance(each, ir.Value) and not self.is_float(each):
                raise CannotEmit(f"{name} is of floating point, and not of {self.element(each)}: cast it")
        return operands

    # --- truths -----------------------------------------------------------------------------------------------------

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
        """Whether both are true."""
        return self._elementwise("logical_and", (x, y))

    def logical_or(self, x: Operand, y: Operand) -> ir.Value:
        """Whether one is true."""
        return self._elementwise("logical_or", (x, y))

    def logical_not(self, x: ir.Value) -> ir.Value:
        """Whether it is false."""
        return self._elementwise("logical_not", (x,))

    def select(self, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
        """``x`` where ``condition``, a tensor of truths, is true; else ``y``."""
        x, y = self._operands((x, y))
        kind = self.tensor(self._broadcast_shape((condition, x, y)), self.element(x))
        return self._map("select", (condition, x, y), kind)

    def cast(self, x: ir.Value, element: str) -> ir.Value:
        """``x`` with elements of another type; floating point becomes integers towards zero, anything a truth by
        whether it is zero."""
        if self.element(x) == element:
            return x
        if element == "i1":
            return self.logical_not(self.equal(x, 0))
        return self._map("cast", (x,), self.tensor(self.shape(x), element))

    # --- shapes -----------------------------------------------------------------------------------------------------

    def reshape(self, x: ir.Value, sizes: Sequence[int]) -> ir.Value:
        """The elements of ``x`` in another shape; one size may be -1.

        Raises:
            CannotEmit: if the elements do not fill it, or two sizes are unknown.
        """
        old = self.shape(x)
        new: list[int | None] = list(sizes)
        known = [size for size in new if size != -1]
        if None in old:
            if new.count(-1) != 1 or old.count(None) > 1:
                raise CannotEmit(f"a tensor of sizes {list(old)} cannot be reshaped to {list(sizes)}: use inline")
            new[new.index(-1)] = None
        elif -1 in new:
            rest = product(known)
            new[new.index(-1)] = product(old) // rest if rest else 0
        if None not in old and product(old) != product(new):
            raise CannotEmit(f"a tensor of sizes {list(old)} cannot be reshaped to {list(sizes)}")
        return x if tuple(new) == old and None not in old else self._reshape(x, self.tensor(new, self.element(x)))

    def transpose(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Result axis ``i`` is axis ``axes[i]`` of ``x``."""
        shape = self.shape(x)
        axes = [axis % len(shape) for axis in axes]
        if sorted(axes) != list(range(len(shape))):
            raise CannotEmit(f"{list(axes)} is no order of the {len(shape)} axes")
        return self._transpose(x, axes, self.tensor([shape[axis] for axis in axes], self.element(x)))

    def broadcast(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """``x`` in the shape of ``like``."""
        shape = self._broadcast_shape((x, like))
        if len(shape) != len(self.shape(like)):
            raise CannotEmit(f"a tensor of sizes {list(self.shape(x))} does not broadcast to {list(self.shape(like))}")
        return self._broadcast(x, like, self.tensor(shape, self.element(x)))

    def concat(self, tensors: Sequence[ir.Value], axis: int) -> ir.Value:
        """The tensors, one behind the other along ``axis``."""
        tensors = self._operands(tensors)
        shape = list(self.shape(tensors[0]))
        axis %= len(shape)
        along = [self.shape(each)[axis] for each in tensors]
        shape[axis] = None if None in along else sum(size or 0 for size in along)
        return self._concat(tensors, axis, self.tensor(shape, self.element(tensors[0])))

    def slice(self, x: ir.Value, starts: Sequence[int], sizes: Sequence[int]) -> ir.Value:
        """A part of ``x``: from ``starts``, of these ``sizes``."""
        if not len(starts) == len(sizes) == len(self.shape(x)):
            raise CannotEmit(f"a slice of a tensor of rank {len(self.shape(x))} takes as many starts and sizes")
        return self._slice(x, starts, self.tensor(sizes, self.element(x)))

    # --- sums and products ------------------------------------------------------------------------------------------

    def sum(self, x: ir.Value, axes: Sequence[int], keepdim: bool = False) -> ir.Value:
        """The sum over ``axes``."""
        return self._reduced("sum", x, axes, keepdim)

    def amax(self, x: ir.Value, axes: Sequence[int], keepdim: bool = False) -> ir.Value:
        """The largest element over ``axes``."""
        return self._reduced("amax", x, axes, keepdim)

    def amin(self, x: ir.Value, axes: Sequence[int], keepdim: bool = False) -> ir.Value:
        """The smallest element over ``axes``."""
        return self._reduced("amin", x, axes, keepdim)

    def _reduced(self, name: str, x: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
        shape = self.shape(x)
        axes = sorted({axis % len(shape) for axis in axes})
        kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
        left = [size for axis, size in enumerate(shape) if axis not in axes]
        return self._reduce(name, x, axes, self.tensor(kept if keepdim else left, self.element(x)))

    def matmul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The product of two matrices, or of two batches of as many."""
        a, b = self.shape(x), self.shape(y)
        x, y = self._operands((x, y))
        if not len(a) == len(b) in (2, 3) or a[:-2] != b[:-2] or a[-1] != b[-2]:
            raise CannotEmit(f"matrices of sizes {list(a)} and {list(b)} have no product")
        return self._matmul(x, y, self.tensor((*a[:-1], b[-1]), self.element(x)))

    # --- what a target says -----------------------------------------------------------------------------------------

    @abstractmethod
    def _constant(self, value: ir.Attribute, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _map(self, name: str, operands: Sequence[ir.Value], kind: ir.Type) -> ir.Value:
        """Emit a function of elements; its operands broadcast to ``kind``."""

    @abstractmethod
    def _reshape(self, x: ir.Value, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _transpose(self, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _broadcast(self, x: ir.Value, like: ir.Value, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _concat(self, tensors: Sequence[ir.Value], axis: int, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _slice(self, x: ir.Value, starts: Sequence[int], kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _reduce(self, name: str, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        """Emit a reduction; ``kind`` has the axes as sizes of 1, or not at all."""

    @abstractmethod
    def _matmul(self, x: ir.Value, y: ir.Value, kind: ir.Type) -> ir.Value: ...
