"""Rules of addition, subtraction, multiplication, negation and rounding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.elementwise.scalars import Number, on_tensors, scalar_like
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


@decomposes(aten.mul.Tensor, aten.mul.Scalar)
def mul(a: Tensor | Number, b: Tensor | Number) -> Tensor:
    """Return ``a * b`` with a number as a tensor."""
    return on_tensors(aten.mul.Tensor, a, b)


SCALAR_ARITHMETIC = (add, sub, rsub, mul)


def for_int8(rule: Decomposition) -> Decomposition:
    """Return ``rule`` restricted to int8 tensors. Their symbolic numbers, such as items of tensors, become tensors."""

    def on_int8(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = next(
            (operand for operand in (a, b) if isinstance(operand, Tensor) and operand.dtype == torch.int8), None
        )
        if tensor is None:
            return NotImplemented
        if isinstance(b, Tensor | Number):
            return rule(a, b, *args, **kwargs)
        packet = rule.operators[0].overloadpacket
        return packet.Tensor(a, scalar_like(b, tensor), *args, **kwargs)

    return Decomposition(rule.operators, on_int8)


@decomposes(aten.rsub.Tensor)
def rsub_tensor(a: Tensor, b: Tensor, alpha: float = 1) -> Tensor:
    """Return ``b - alpha * a``."""
    return torch.sub(b, a, alpha=alpha)


@decomposes(aten.neg.default)
def neg_integers(x: Tensor) -> Tensor:
    """Return ``0 - x`` for integers; the C++ lowering goes through floats."""
    return NotImplemented if x.is_floating_point() or x.is_complex() else torch.full((), 0, dtype=x.dtype) - x


@decomposes(aten.trunc.default)
def trunc(x: Tensor) -> Tensor:
    """Round towards zero; the dialect folds a constant with the wrong sign: 5.0 becomes -5.0."""
    return torch.where(x < 0.0, torch.ceil(x), torch.floor(x)) if x.is_floating_point() else x.clone()


@decomposes(aten.linalg_cross.default)
def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Return the cross product of vectors along ``dim``: of each axis, what the products of the one before it give."""
    a, b = torch.broadcast_tensors(a, b)
    return (a * b.roll(-1, dim) - a.roll(-1, dim) * b).roll(-1, dim)
