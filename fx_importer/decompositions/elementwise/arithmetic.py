"""Rules of addition, subtraction, multiplication and negation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.elementwise.scalars import Number, scalar_like, with_scalar
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _float_scalar(operator: OpOverload) -> Decomposition:
    """Return the rule of ``operator`` on a float tensor and an int: the int becomes a float."""

    @decomposes(operator)
    def rule(x: Any, number: Any, *rest: Any, **kwargs: Any) -> Any:
        if type(number) is not int or not isinstance(x, Tensor) or not x.is_floating_point():
            return NotImplemented
        return operator(x, float(number), *rest, **kwargs)

    return rule


FLOAT_SCALAR_ARITHMETIC = tuple(
    map(
        _float_scalar,
        (aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.mul.Tensor, aten.mul.Scalar),
    )
)
"""Arithmetic of a float tensor and an int, as with a float."""


@decomposes(aten.add.Tensor, aten.add.Scalar)
def add(a: Tensor, b: Tensor | Number, alpha: Number = 1) -> Tensor:
    """Return ``a + alpha * b``."""
    return aten.add.Tensor(a, scalar_like(b * alpha, a)) if isinstance(b, Number) else NotImplemented


@decomposes(aten.sub.Tensor, aten.sub.Scalar)
def sub(a: Tensor, b: Tensor | Number, alpha: Number = 1) -> Tensor:
    """Return ``a - alpha * b``."""
    return aten.sub.Tensor(a, scalar_like(b * alpha, a)) if isinstance(b, Number) else NotImplemented


@decomposes(aten.rsub.Scalar)
def rsub(a: Tensor, b: Number, alpha: Number = 1) -> Tensor:
    """Return ``b - alpha * a``."""
    return scalar_like(b, a) - (a if alpha == 1 else a * alpha) if isinstance(b, Number) else NotImplemented


mul = with_scalar(aten.mul.Tensor, aten.mul.Tensor, aten.mul.Scalar)


SCALAR_ARITHMETIC = (add, sub, rsub, mul)


def for_int8(rule: Decomposition) -> Decomposition:
    """Return ``rule`` restricted to int8 tensors."""

    def on_int8(*args: Any, **kwargs: Any) -> Any:
        has_int8 = any(isinstance(each, Tensor) and each.dtype == torch.int8 for each in args)
        return rule(*args, **kwargs) if has_int8 else NotImplemented

    return Decomposition(rule.operators, on_int8)


@decomposes(aten.rsub.Tensor)
def rsub_tensor(a: Tensor, b: Tensor, alpha: float = 1) -> Tensor:
    """Return ``b - alpha * a``."""
    return torch.sub(b, a, alpha=alpha)


@decomposes(aten.neg.default)
def neg_integers(x: Tensor) -> Tensor:
    """Return ``0 - x`` for integers; the C++ lowering goes through floats."""
    return NotImplemented if x.is_floating_point() or x.is_complex() else torch.full((), 0, dtype=x.dtype) - x


@decomposes(aten.add.Tensor, aten.add.Scalar)
def add_bools(a: Tensor, b: Tensor | complex, alpha: complex = 1) -> Tensor:
    """Return the sum of bools, their logical or: in one bit, true and true would be false."""
    if not _are_bools(a, b) or alpha != 1:
        return NotImplemented
    return torch.logical_or(a, b if isinstance(b, Tensor) else torch.full((), b, dtype=torch.bool))


@decomposes(aten.mul.Tensor, aten.mul.Scalar)
def mul_bools(a: Tensor, b: Tensor | complex) -> Tensor:
    """Return the product of bools, their logical and: TOSA does not multiply bools."""
    if not _are_bools(a, b):
        return NotImplemented
    return torch.logical_and(a, b if isinstance(b, Tensor) else torch.full((), b, dtype=torch.bool))


def _are_bools(a: Tensor, b: Tensor | complex) -> bool:
    if not isinstance(a, Tensor):
        return False
    return a.dtype is torch.bool and (isinstance(b, bool) or (isinstance(b, Tensor) and b.dtype is torch.bool))
