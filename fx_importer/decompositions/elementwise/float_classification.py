"""Operators whose lowerings are wrong at NaN, at infinities, or next to zero."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from fx_importer.decompositions.elementwise.low_precision import HALVES
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

Number = int | float


@decomposes(aten.eq.Tensor)
def equal(a: Tensor, b: Tensor) -> Any:
    """A tensor of floats is itself, but for NaN: C++ folds ``x == x`` to true. Others stay."""
    return torch.logical_not(a != b) if a is b and a.is_floating_point() else NotImplemented


@decomposes(aten.isfinite.default)
def isfinite(x: Tensor) -> Tensor:
    """Whether the magnitude is below infinity, which NaN's is not."""
    if x.is_complex():
        return NotImplemented
    return x.abs() < math.inf if x.is_floating_point() else torch.ones_like(x, dtype=torch.bool)


@decomposes(aten.isinf.default)
def isinf(x: Tensor) -> Any:
    """Whether the magnitude is infinity: the C++ lowerings compare in float64. No whole number is."""
    if x.is_complex():
        return NotImplemented
    return x.abs() == math.inf if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)


@decomposes(aten.isclose.default)
def isclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether ``a == b``, or their finite difference is at most ``atol + rtol * |b|``."""
    if a.is_complex() or b.is_complex():
        return NotImplemented
    if a.dtype == torch.bool:
        a, b = a.float(), b.float()
    close = a == b
    if equal_nan and a.is_floating_point():
        close = close | ((a != a) & (b != b))
    if rtol == 0 and atol == 0:
        return close
    error = (a - b).abs()
    return close | (isfinite(error) & (error <= atol + (b * rtol).abs()))


@decomposes(aten.signbit.default)
def signbit(x: Tensor) -> Tensor:
    """Whether a number is negative, or the zero whose reciprocal is. NaN has no sign here."""
    return (x < 0) | ((x == 0) & (1.0 / x < 0)) if x.is_floating_point() else x < 0


@decomposes(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(x: Tensor, sign: Tensor | Number) -> Tensor:
    """The magnitude of ``x`` with the sign of ``sign``."""
    if not isinstance(sign, Tensor):
        magnitude = x.abs() * 1.0
        return -magnitude if math.copysign(1, sign) < 0 else magnitude
    dtype = torch.result_type(x, sign)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    magnitude = x.to(dtype).abs()
    return torch.where(signbit(sign), -magnitude, magnitude)


@decomposes(aten.reciprocal.default)
def reciprocal(x: Tensor) -> Any:
    """``1 / x``: the C++ lowering asserts that there is no zero."""
    if x.is_complex():
        return NotImplemented
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.ones((), dtype=x.dtype) / x


@decomposes(aten.reciprocal.default)
def reciprocal_of_integers(x: Tensor) -> Any:
    """``1 / x``, as a float; others stay."""
    return reciprocal(x) if not x.is_floating_point() else NotImplemented


@decomposes(aten.erf.default)
def erf_of_integers(x: Tensor) -> Any:
    """The error function of whole numbers, as a float; others stay."""
    return NotImplemented if x.is_floating_point() else torch.erf(x.to(torch.get_default_dtype()))


@decomposes(aten.neg.default)
def negate(x: Tensor) -> Tensor:
    """``0 - x`` of integers: the C++ lowering goes through floats."""
    return NotImplemented if x.is_floating_point() or x.is_complex() else torch.full((), 0, dtype=x.dtype) - x


@decomposes(aten.elu.default)
def elu(x: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    """``scale * (x if x > 0 else alpha * expm1(input_scale * x))``; ``exp(x) - 1`` loses what is next to zero."""
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


@decomposes(aten.gelu.default)
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """``x * Φ(x)``, or its approximation by a hyperbolic tangent. Half precision in float32, as eager does.

    The C++ lowerings round its constants to four digits, and cube by a power, which TOSA has of positive numbers only.
    """
    if x.dtype in HALVES:
        return gelu(x.float(), approximate).to(x.dtype)
    if approximate != "tanh":
        return x * 0.5 * (torch.erf(x * math.sqrt(0.5)) + 1.0)
    return x * 0.5 * (torch.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)


@decomposes(aten.clamp.default)
def clamp(x: Tensor, min: Number | None = None, max: Number | None = None) -> Any:
    """Of whole numbers between floats, which the C++ lowering compares as they are; or a bound is NaN. Others stay."""
    if any(isinstance(each, float) and math.isnan(each) for each in (min, max)):
        return torch.full_like(x, math.nan, dtype=torch.result_type(x, math.nan))
    if x.is_floating_point() or not any(isinstance(each, float) for each in (min, max)):
        return NotImplemented
    return torch.clamp(x.to(torch.get_default_dtype()), min, max)


@decomposes(aten.clamp.Tensor)
def clamp_between(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Any:
    """Between tensors of another dtype than that of ``x``, all in the dtype of the result. Others stay."""
    bounds = [each for each in (min, max) if each is not None]
    _, dtype = elementwise_dtypes(x, *bounds, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    if all(each.dtype == dtype for each in (x, *bounds)):
        return NotImplemented
    return torch.clamp(x.to(dtype), *(None if each is None else each.to(dtype) for each in (min, max)))


@decomposes(aten.trunc.default)
def trunc(x: Tensor) -> Tensor:
    """Towards zero. The dialect's own folds a constant with the wrong sign: 5.0 becomes -5.0."""
    return torch.where(x < 0.0, torch.ceil(x), torch.floor(x)) if x.is_floating_point() else x.clone()


@decomposes(aten.heaviside.default)
def heaviside(x: Tensor, at_zero: Tensor) -> Tensor:
    """One above zero, ``at_zero`` at it, and zero elsewhere."""
    return torch.where(x == 0, at_zero, (x > 0).to(x.dtype))


COMMON: tuple[Decomposition, ...] = (isfinite, isinf, isclose, signbit, copysign, heaviside)
"""What no lowering has right."""
