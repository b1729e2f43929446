"""Rules of comparisons: eq, ne, lt, le, gt, ge and isclose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from fx_importer.decompositions.elementwise.float_classification import isfinite
from fx_importer.decompositions.elementwise.scalars import Number, number_of_dtype, on_tensors, scalar_like
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.eq.Tensor, aten.eq.Scalar)
def eq(a: Tensor, b: Tensor | Number) -> Tensor:
    """Compare with a scalar as a tensor; compare a float tensor with itself by ``ne``, which is true for NaN.

    C++ folds ``x == x`` to true.
    """
    if isinstance(b, Number):
        return aten.eq.Tensor(a, scalar_like(b, a))
    return torch.logical_not(a != b) if a is b and a.is_floating_point() else NotImplemented


def _with_scalar(packet: OpOverloadPacket) -> Decomposition:
    """Return the rule that compares with a scalar as a tensor."""

    @decomposes(packet.Scalar)
    def rule(a: Tensor, b: Number) -> Tensor:
        return on_tensors(packet.Tensor, a, b)

    return rule


SCALAR_COMPARISONS = (eq, *map(_with_scalar, (aten.ne, aten.lt, aten.le, aten.gt, aten.ge)))


def _same_kind(operator: OpOverload) -> Decomposition:
    """Return the rule that compares with a scalar of the tensor's own kind: float, or integer."""

    @decomposes(operator)
    def rule(x: Tensor, number: Number) -> Any:
        if not isinstance(number, Number) or x.is_complex():
            return NotImplemented
        wide = torch.result_type(x, number + 0)  # + 0 makes an int of a bool
        same_kind = float(number) if wide.is_floating_point else number + 0
        same_kind = number_of_dtype(same_kind, wide)
        if wide == x.dtype and type(same_kind) is type(number) and (same_kind == number or number != number):
            return NotImplemented
        return operator(x.to(wide), same_kind)

    return rule


SAME_KIND_COMPARISONS = tuple(
    map(
        _same_kind,
        (aten.eq.Scalar, aten.ne.Scalar, aten.lt.Scalar, aten.le.Scalar, aten.gt.Scalar, aten.ge.Scalar),
    )
)
"""Comparisons with a scalar: of floats with a float, of integers with an int, of bools as integers."""


@decomposes(aten.eq.Tensor)
def eq_itself(a: Tensor, b: Tensor) -> Any:
    """Compare a float tensor with itself by ``ne``, which is true for NaN: C++ folds ``x == x`` to true."""
    return torch.logical_not(a != b) if a is b and a.is_floating_point() else NotImplemented


@decomposes(aten.isclose.default)
def isclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Return whether ``a == b``, or their difference is finite and at most ``atol + rtol * |b|``."""
    if a.is_complex() or b.is_complex():
        return NotImplemented
    close = a == b
    if not a.is_floating_point():  # their difference could overflow
        a, b = (operand.to(torch.get_default_dtype()) for operand in (a, b))
    if equal_nan and a.is_floating_point():
        close = close | ((a != a) & (b != b))
    if rtol == 0 and atol == 0:
        return close
    error = (a - b).abs()
    return close | (isfinite(error) & (error <= atol + (b * rtol).abs()))
