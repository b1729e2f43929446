"""Arithmetic of a tensor and a number, as arithmetic of two tensors of one type.

The StableHLO lowerings carry a number as a float64 (or int64) ``arith.constant`` and a conversion, which no consumer of
StableHLO takes; TOSA's ``eq`` compares in float64. A constant tensor of the result's own type is lowered cleanly.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

Number = int | float
"""Not a complex number, nor a symbolic one: those are left as they are."""


def _constant(value: Number, other: Tensor) -> Tensor:
    """Return ``value``, symbolic or not, as a tensor of rank zero, of the type that arithmetic with ``other`` has."""
    if isinstance(value, SymInt | SymFloat):
        like = 0 if isinstance(value, SymInt) else 0.0
        return torch.scalar_tensor(value, dtype=torch.result_type(other, like))
    return torch.full((), value, dtype=torch.result_type(other, value))


def _binary(onto: OpOverload, *operators: OpOverload) -> Decomposition:
    """Return the rule of ``operators``, for a number on either side: ``onto`` takes two tensors."""

    @decomposes(*operators)
    def rule(a: Tensor | Number, b: Tensor | Number, **kwargs: Any) -> Tensor:
        if isinstance(b, Number) and isinstance(a, Tensor):
            return onto(a, _constant(b, a), **kwargs)
        if isinstance(a, Number) and isinstance(b, Tensor):
            return onto(_constant(a, b), b, **kwargs)
        return NotImplemented

    return rule


@decomposes(aten.eq.Tensor, aten.eq.Scalar)
def equal(a: Tensor, b: Tensor | Number) -> Tensor:
    """Two tensors. A tensor of floats is itself, but for NaN: C++ folds ``x == x`` to true."""
    if isinstance(b, Number):
        return aten.eq.Tensor(a, _constant(b, a))
    return torch.logical_not(a != b) if a is b and a.is_floating_point() else NotImplemented


COMPARISONS = (
    equal,
    _binary(aten.ne.Tensor, aten.ne.Scalar),
    _binary(aten.lt.Tensor, aten.lt.Scalar),
    _binary(aten.le.Tensor, aten.le.Scalar),
    _binary(aten.gt.Tensor, aten.gt.Scalar),
    _binary(aten.ge.Tensor, aten.ge.Scalar),
)


def _of_one_kind(operator: OpOverload) -> Decomposition:
    @decomposes(operator)
    def rule(x: Tensor, number: Number) -> Any:
        if x.is_floating_point() and isinstance(number, int):
            return operator(x, float(number))
        if not isinstance(number, Number) or x.is_complex():
            return NotImplemented
        wide = torch.result_type(x, number + 0)  # of truths, too, a number
        return operator(x.to(wide), number + 0) if wide != x.dtype else NotImplemented

    return rule


COMPARISONS_OF_ONE_KIND = tuple(
    map(
        _of_one_kind,
        (aten.eq.Scalar, aten.ne.Scalar, aten.lt.Scalar, aten.le.Scalar, aten.gt.Scalar, aten.ge.Scalar),
    )
)
"""Comparisons with a number: of floats with a float, of integers with an integer, of truths as integers."""


def _of_floats(operator: OpOverload) -> Decomposition:
    @decomposes(operator)
    def rule(x: Any, number: Any, *rest: Any, **kwargs: Any) -> Any:
        if type(number) is not int or not isinstance(x, Tensor) or not x.is_floating_point():
            return NotImplemented
        return operator(x, float(number), *rest, **kwargs)

    return rule


ARITHMETIC_OF_FLOATS = tuple(
    map(
        _of_floats,
        (aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.mul.Tensor, aten.mul.Scalar),
    )
)
"""Arithmetic of floats with a whole number, as that with a float."""


@decomposes(aten.add.Tensor, aten.add.Scalar)
def add(a: Tensor, b: Tensor | Number, alpha: Number = 1) -> Tensor:
    """``a + alpha * b``."""
    return aten.add.Tensor(a, _constant(b * alpha, a)) if isinstance(b, Number) else NotImplemented


@decomposes(aten.sub.Tensor, aten.sub.Scalar)
def sub(a: Tensor, b: Tensor | Number, alpha: Number = 1) -> Tensor:
    """``a - alpha * b``."""
    return aten.sub.Tensor(a, _constant(b * alpha, a)) if isinstance(b, Number) else NotImplemented


@decomposes(aten.rsub.Scalar)
def rsub(a: Tensor, b: Number, alpha: Number = 1) -> Tensor:
    """``b - alpha * a``."""
    return _constant(b, a) - (a if alpha == 1 else a * alpha) if isinstance(b, Number) else NotImplemented


@decomposes(aten.clamp.default)
def clamp(x: Tensor, min: Number | None = None, max: Number | None = None) -> Tensor:
    """The smaller of ``max`` and the larger of ``min`` and ``x``; not a number stays so."""
    if min is not None:
        x = torch.maximum(x, _constant(min, x))
    if max is not None:
        x = torch.minimum(x, _constant(max, x))
    return x


@decomposes(aten.mean.dim)
def mean(x: Tensor, dim: list[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """The sum over ``dim`` (all, if none is given), divided by the number of its terms."""
    count = math.prod(x.shape[axis] for axis in (dim or range(x.dim())) if x.dim())
    if not isinstance(count, int) or x.is_complex():
        return NotImplemented
    return torch.sum(x, dim, keepdim, dtype=dtype) / count


SHIFTS = (
    _binary(
        aten.bitwise_left_shift.Tensor,
        *(aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_left_shift.Scalar_Tensor),
    ),
    _binary(
        aten.bitwise_right_shift.Tensor,
        *(aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Scalar_Tensor),
    ),
    decomposes(aten.__lshift__.Tensor)(torch.bitwise_left_shift),
    decomposes(aten.__rshift__.Tensor)(torch.bitwise_right_shift),
)
"""Python's ``<<`` and ``>>`` too, under the one name that backends know."""

multiply = _binary(aten.mul.Tensor, aten.mul.Tensor, aten.mul.Scalar)

ARITHMETIC = (
    *(add, sub, rsub, clamp, mean),
    multiply,
    _binary(aten.div.Tensor, aten.div.Tensor, aten.div.Scalar),
    _binary(aten.pow.Tensor_Tensor, aten.pow.Scalar),
)


def of_small_integers(rule: Decomposition) -> Decomposition:
    """Return ``rule`` for tensors of 8 bits alone; others stay."""

    def small(*args: Any, **kwargs: Any) -> Any:
        is_small = any(isinstance(each, Tensor) and each.dtype == torch.int8 for each in args)
        return rule(*args, **kwargs) if is_small else NotImplemented

    return Decomposition(rule.operators, small)
