"""Rules of Bessel functions of both kinds of orders 0 and 1, spherical j0, and the Airy function.

Sources: DLMF 10.8 (expansions at zero), 10.17 (amplitude and phase), 9.7 (the Airy function's). The Chebyshev series
are our own (``benchmarks/special_series.py``). Errors are absolute. Eager itself is off by 4e-7 between 5 and 8, and by
3e-6 for the Airy function at -2.1, in float64 too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fx_importer.decompositions.special.chebyshev import Series, decomposes_in_float, series
from fx_importer.fx_graph.operators import aten

_TWO_BY_PI = 2 / math.pi


def _asymptotic(x: Tensor, p: Series, q: Series, *, first_kind: bool, order: int) -> Tensor:
    """Return J or Y for ``x`` from 8.

    Sine and cosine of ``x - pi / 4`` are computed from sine and cosine of x: the difference is never rounded.
    """
    ratio = torch.square(8 / x)
    cosine, sine = torch.cos(x), torch.sin(x)
    plus, minus = cosine + sine, sine - cosine
    # cos and sin of x - pi / 4, or of x - 3 pi / 4, times the root of 2
    c, s = (plus, minus) if order == 0 else (minus, -plus)
    amplitude, drift = p(ratio), q(ratio) / x
    turned = amplitude * c - drift * s if first_kind else amplitude * s + drift * c
    return torch.rsqrt(math.pi * x) * turned


def _first_kind(x: Tensor, order: int) -> Tensor:
    """Return ``J(order, x)`` for x from 0."""
    near = torch.square(x / 8)
    small = series("J0_SMALL")(near) if order == 0 else x * series("J1_SMALL")(near)
    p, q = series(f"P{order}"), series(f"Q{order}")
    return torch.where(x < 8, small, _asymptotic(x, p, q, first_kind=True, order=order))


@decomposes_in_float(aten.special_bessel_j0.default)
def bessel_j0(x: Tensor) -> Tensor:
    """Return ``J(0, x)``. Error in float32: 6e-7 from -100 to 100, in float64: 1e-15."""
    return _first_kind(x.abs(), 0)


@decomposes_in_float(aten.special_bessel_j1.default)
def bessel_j1(x: Tensor) -> Tensor:
    """Return ``J(1, x)``. Error in float32: 6e-7 from -100 to 100, in float64: 1e-15."""
    magnitude = _first_kind(x.abs(), 1)
    return torch.where(x < 0, -magnitude, magnitude)


@decomposes_in_float(aten.special_bessel_y0.default)
def bessel_y0(x: Tensor) -> Tensor:
    """Return ``Y(0, x)``: minus infinity at zero, NaN for negative x.

    Error in float32: 9e-7 of the larger of the result and 1, to 100, in float64: 2e-15.
    """
    near = torch.square(x / 8)
    small = series("Y0_SMALL")(near) + _TWO_BY_PI * torch.log(x) * series("J0_SMALL")(near)
    result = torch.where(x < 8, small, _asymptotic(x, series("P0"), series("Q0"), first_kind=False, order=0))
    return torch.where(x == 0, -torch.inf, torch.where(x < 0, torch.nan, result))


@decomposes_in_float(aten.special_bessel_y1.default)
def bessel_y1(x: Tensor) -> Tensor:
    """Return ``Y(1, x)``: minus infinity at zero, NaN for negative x.

    Error in float32: 9e-7 of the larger of the result and 1, to 100, in float64: 2e-15.
    """
    near = torch.square(x / 8)
    logarithm = torch.log(x) * x * series("J1_SMALL")(near)
    small = x * series("Y1_SMALL")(near) + _TWO_BY_PI * (logarithm - 1 / x)
    result = torch.where(x < 8, small, _asymptotic(x, series("P1"), series("Q1"), first_kind=False, order=1))
    return torch.where(x == 0, -torch.inf, torch.where(x < 0, torch.nan, result))


@decomposes_in_float(aten.special_spherical_bessel_j0.default)
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """Return ``sin(x) / x``, 1 at zero and 0 at infinity. Error in float32: 1e-7."""
    safe = torch.where(x == 0, 1, x)
    return torch.where(x == 0, 1, torch.where(x.abs() == torch.inf, 0, torch.sin(safe) / safe))


@decomposes_in_float(aten.special_airy_ai.default)
def airy_ai(x: Tensor) -> Tensor:
    """Return ``Ai(x)``: NaN at both infinities, zero above 103.892 as in eager.

    Error in float32: 2e-6 from -10, 2e-5 from -100, where the phase is rounded; in float64: 2e-14.
    """
    magnitude = x.abs()
    root = torch.sqrt(magnitude)
    z = magnitude * root * (2 / 3)
    quarter = torch.sqrt(root)
    end = 2 / 3 * 2**1.5
    right = series("AIRY_RIGHT")(end / z) * torch.exp(-z) / (2 * math.sqrt(math.pi) * quarter)
    ratio = torch.square((2 / 3 * 8) / z)
    cosine, sine = torch.cos(z), torch.sin(z)
    turned = (sine + cosine) * series("AIRY_P")(ratio) + (sine - cosine) * series("AIRY_Q")(ratio) / z
    left = turned / (math.sqrt(2 * math.pi) * quarter)
    result = torch.where(x > 2, right, torch.where(x < -4, left, series("AIRY_MIDDLE")(x)))
    return torch.where(magnitude == torch.inf, torch.nan, torch.where(x > 103.892, 0, result))


BESSEL = (bessel_j0, bessel_j1, bessel_y0, bessel_y1, spherical_bessel_j0, airy_ai)
