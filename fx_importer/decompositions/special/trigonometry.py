"""Rules of hyperbolic and inverse functions, by functions that TOSA has: exponentials, roots; hypot, angle, polar.

Sources: DLMF 4.23 and 4.24 (inverse trigonometric functions), 4.37 (inverse hyperbolic ones). The Chebyshev series are
our own (``benchmarks/special_series.py``).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.special.chebyshev import decomposes_in_float, series
from fx_importer.decompositions.special.logarithms import expm1, log1p
from fx_importer.fx_graph.operators import aten


def _signed(magnitude: Tensor, x: Tensor) -> Tensor:
    """Return ``magnitude`` with the sign of x; zero and NaN as in x."""
    return torch.where(x > 0, magnitude, torch.where(x < 0, -magnitude, x))


def _sqrt(x: Tensor) -> Tensor:
    """Return the square root, NaN of negative numbers, for which TOSA's power is undefined."""
    return torch.where(x >= 0, torch.sqrt(torch.where(x >= 0, x, 0)), torch.nan)


def _atan_of_ratio(y: Tensor, x: Tensor) -> Tensor:
    """Return the angle of the point (x, y) in the first quadrant, by the smaller over the larger."""
    scale = torch.where(torch.maximum(x, y) < 2.0**-60, 2.0**64, 1.0)  # reciprocals of subnormal numbers are infinite
    x, y = x * scale, y * scale
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = torch.where(large == small, torch.where(large == 0, 0, 1), small / torch.where(large == 0, 1, large))
    angle = ratio * series("ATAN")(ratio * ratio)
    return torch.where(y > x, math.pi / 2 - angle, angle)


@decomposes_in_float(aten.atan.default)
def atan(x: Tensor) -> Tensor:
    """Return the inverse tangent.

    Relative error in float32: 3e-7.
    """
    return _signed(_atan_of_ratio(x.abs(), torch.ones_like(x)), x)


@decomposes_in_float(aten.atan2.default)
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """Return the angle of the point (x, y); the signs of zeros count.

    Relative error in float32: 3e-7.
    """
    y, x = torch.broadcast_tensors(y, x)
    angle = _atan_of_ratio(y.abs(), x.abs())
    angle = torch.where((x < 0) | ((x == 0) & (torch.reciprocal(x) < 0)), math.pi - angle, angle)
    angle = torch.where((y < 0) | ((y == 0) & (torch.reciprocal(y) < 0)), -angle, angle)
    return torch.where(x.isnan() | y.isnan(), torch.nan, angle)


@decomposes_in_float(aten.asin.default)
def asin(x: Tensor) -> Tensor:
    """Return the inverse sine: from 1/2 on, ``pi / 2 - 2 asin(sqrt((1 - x) / 2))``.

    Relative error in float32: 3e-7.
    """
    magnitude = x.abs()
    square = torch.where(magnitude < 0.5, magnitude * magnitude, (1 - magnitude) / 2)
    base = torch.where(magnitude < 0.5, magnitude, _sqrt(square))
    angle = base * series("ASIN")(square)
    return _signed(torch.where(magnitude < 0.5, angle, math.pi / 2 - 2 * angle), x)


@decomposes_in_float(aten.acos.default)
def acos(x: Tensor) -> Tensor:
    """Return the inverse cosine.

    Relative error in float32: 4e-7, near 1 2e-7.
    """
    magnitude = x.abs()
    square = torch.where(magnitude < 0.5, magnitude * magnitude, (1 - magnitude) / 2)
    base = torch.where(magnitude < 0.5, x, _sqrt(square))
    angle = base * series("ASIN")(square)
    outer = torch.where(x < 0, math.pi - 2 * angle, 2 * angle)
    return torch.where(magnitude < 0.5, math.pi / 2 - angle, outer)


@decomposes_in_float(aten.asinh.default)
def asinh(x: Tensor) -> Tensor:
    """Return ``log(x + sqrt(x**2 + 1))``, as `log1p` near zero. Relative error in float32: 6e-7."""
    magnitude = x.abs()
    near = torch.where(magnitude < 1e8, magnitude, 0)
    square = near * near
    inner = log1p(near + square / (1 + torch.sqrt(1 + square)))
    return _signed(torch.where(magnitude < 1e8, inner, torch.log(magnitude) + math.log(2)), x)


@decomposes_in_float(aten.acosh.default)
def acosh(x: Tensor) -> Tensor:
    """Return ``log(x + sqrt(x**2 - 1))``, as `log1p` near 1. Relative error in float32: 6e-7."""
    over = torch.where(x < 1e8, x - 1, 0)
    inner = log1p(over + _sqrt(over * (over + 2)))
    return torch.where(x < 1e8, torch.where(x < 1, torch.nan, inner), torch.log(x) + math.log(2))


@decomposes_in_float(aten.atanh.default)
def atanh(x: Tensor) -> Tensor:
    """Return ``log((1 + x) / (1 - x)) / 2``, as `log1p`. Relative error in float32: 6e-7."""
    magnitude = x.abs()
    inner = log1p(2 * magnitude / torch.where(magnitude < 1, 1 - magnitude, 1)) / 2
    edge = torch.where(magnitude == 1, torch.inf, torch.nan)
    return _signed(torch.where(magnitude < 1, inner, edge), x)


@decomposes_in_float(aten.sinh.default)
def sinh(x: Tensor) -> Tensor:
    """Return ``(exp(x) - exp(-x)) / 2``, by `expm1`; of large x by half of x, so that it does not overflow early.

    Relative error in float32: 7e-7 to 80, and beyond 80 the error of the exponential.
    """
    magnitude = x.abs()
    grown = expm1(torch.where(magnitude < 80, magnitude, 0))
    half = torch.exp(magnitude / 2)
    return _signed(torch.where(magnitude < 80, (grown + grown / (grown + 1)) / 2, half * (half / 2)), x)


@decomposes_in_float(aten.cosh.default)
def cosh(x: Tensor) -> Tensor:
    """Return ``(exp(x) + exp(-x)) / 2``; large ones by half of x. Relative error in float32: 3e-7 to 80."""
    magnitude = x.abs()
    half = torch.exp(magnitude / 2)
    return torch.where(magnitude < 80, (torch.exp(magnitude) + torch.exp(-magnitude)) / 2, half * (half / 2))


@decomposes_in_float(aten.sinc.default)
def sinc(x: Tensor) -> Tensor:
    """Return ``sin(pi x) / (pi x)``; 1 where it rounds to that, since reciprocals of subnormal numbers are infinite."""
    angle = math.pi * x
    small = angle.abs() < torch.finfo(x.dtype).eps / 4
    return torch.where(small, 1, torch.sin(angle) / torch.where(small, 1, angle))


TRIGONOMETRY = (atan, atan2, asin, acos, asinh, acosh, atanh, sinh, cosh, sinc)


@decomposes_in_float(aten.hypot.default)
def hypot(a: Tensor, b: Tensor) -> Tensor:
    """Return ``sqrt(a**2 + b**2)``, by the ratio of both, so that no square overflows.

    Relative error in float32: 2e-7.
    """
    large, small = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    ratio = small / torch.where(large == 0, 1, large)
    length = large * torch.sqrt(1 + ratio * ratio)
    infinite = (a.abs() == torch.inf) | (b.abs() == torch.inf)
    return torch.where(infinite, torch.inf, length)


@decomposes(aten.angle.default)
def angle(x: Tensor) -> Any:
    """Return the angle of a complex number, 0 or pi of a real one, NaN of NaN."""
    if x.is_complex():
        return torch.atan2(*reversed(parts_of_tensor(x)))
    real = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.where(real != real, real, (real < 0).to(real.dtype) * math.pi)


@decomposes(aten.polar.default)
def polar(magnitude: Tensor, angle: Tensor) -> Tensor:
    """Return the complex number of this magnitude and angle."""
    magnitude, angle = torch.broadcast_tensors(magnitude, angle)
    return torch.complex(magnitude * torch.cos(angle), magnitude * torch.sin(angle))


POLAR_COORDINATES = (hypot, angle, polar)
