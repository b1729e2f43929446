"""Rules of erfc, erfcx, erfinv, ndtri and erf of integers.

The complement is scaled as in Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc(x)" (1981);
the inverse uses ``-log(1 - x²)`` as in Giles, "Approximating the erfinv function" (2010). The Chebyshev series are our
own (``benchmarks/special_series.py``).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.special.chebyshev import decomposes_in_float, series
from fx_importer.fx_graph.operators import aten


def _scaled_complement(x: Tensor) -> Tensor:
    """Return ``exp(x**2) * erfc(x)`` for x from 0."""
    return series("ERFCX")(torch.where(x == torch.inf, 1, (x - 3.75) / (x + 3.75))) / (1 + 2 * x)


def _exp_of_square(x: Tensor, sign: float) -> Tensor:
    """Return ``exp(sign * x**2)`` without rounding the exponent.

    The square of the leading bits of x is exact.
    """
    coarse = torch.floor(x * 16) / 16
    return torch.exp(sign * coarse * coarse) * torch.exp(sign * (x - coarse) * (x + coarse))


@decomposes_in_float(aten.erfc.default)
def erfc(x: Tensor) -> Tensor:
    """Return ``1 - erf(x)``, from 1/2 on without that difference.

    Relative error in float32: 5e-7 to 9, where the result becomes subnormal; in float64: 1e-15.
    """
    magnitude = x.abs()
    tail = torch.where(
        magnitude < 28, _exp_of_square(torch.where(magnitude < 28, magnitude, 0), -1) * _scaled_complement(magnitude), 0
    )
    tail = torch.where(x.isnan(), x, tail)
    return torch.where(magnitude < 0.5, 1 - torch.erf(x), torch.where(x < 0, 2 - tail, tail))


@decomposes_in_float(aten.special_erfcx.default)
def erfcx(x: Tensor) -> Tensor:
    """Return ``exp(x**2) * erfc(x)``.

    Relative error in float32: 5e-7 from -9 to 1e30, in float64: 1e-14.
    """
    magnitude = x.abs()
    scaled = _scaled_complement(magnitude)
    square = torch.where(magnitude < 28, _exp_of_square(torch.where(magnitude < 28, magnitude, 0), 1), torch.inf)
    return torch.where(x < 0, 2 * square - scaled, scaled)


def _inverse_over_x(w: Tensor) -> Tensor:
    """Return ``erfinv(x) / x`` for ``w = -log(1 - x**2)``."""
    tail = torch.where(w > 5, w, 5)  # TOSA's power is undefined for NaN
    return torch.where(w < 5, series("ERFINV_CENTRE")(w), torch.sqrt(tail) * series("ERFINV_TAIL")(torch.log(tail) / 2))


@decomposes_in_float(aten.erfinv.default)
def erfinv(x: Tensor) -> Tensor:
    """Return the inverse of erf: infinite at 1 and -1, NaN beyond.

    Relative error in float32: 3e-7, in float64: 2e-15, in all of its domain.
    """
    w = -torch.log((1 - x) * (1 + x))
    inner = x * _inverse_over_x(w)
    return torch.where(x.abs() < 1, inner, torch.where(x.abs() == 1, x * torch.inf, torch.nan))


@decomposes_in_float(aten.special_ndtri.default)
def ndtri(p: Tensor) -> Tensor:
    """Return the quantile of the normal distribution: infinite at 0 and 1, NaN beyond.

    Relative error in float32: 5e-7, in float64: 5e-15, in all of its domain.
    """
    w = -torch.log(4 * p * (1 - p))
    inner = math.sqrt(2) * (2 * p - 1) * _inverse_over_x(w)
    edge = torch.where(p == 0, -torch.inf, torch.where(p == 1, torch.inf, torch.nan))
    return torch.where((p > 0) & (p < 1), inner, edge)


ERROR_FUNCTIONS = (erfc, erfcx, erfinv, ndtri)


@decomposes(aten.erf.default)
def erf_of_integers(x: Tensor) -> Any:
    """Return the error function of integers, as a float; on floats the operator stays."""
    return NotImplemented if x.is_floating_point() else torch.erf(x.to(torch.get_default_dtype()))
