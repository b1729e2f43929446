"""Rules of modified Bessel functions of both kinds of orders 0 and 1, scaled by an exponential or not.

Sources: DLMF 10.25, 10.31 and 10.40. The intervals (split at 8 for I, at 2 for K) and the scaled functions on them are
from Cephes (Stephen L. Moshier), as in eager's kernels. Errors are relative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.special.chebyshev import decomposes_in_float, series
from fx_importer.fx_graph.operators import aten


def _scaled_first(magnitude: Tensor, order: int) -> Tensor:
    """Return ``exp(-x) * I(order, x)`` for x from 0."""
    small = series("I0_SMALL")(magnitude) if order == 0 else magnitude * series("I1_SMALL")(magnitude)
    large = series(f"I{order}_LARGE")(8 / magnitude)
    return torch.where(magnitude < 8, small, large * torch.rsqrt(magnitude))


@decomposes_in_float(aten.special_i0e.default)
def i0e(x: Tensor) -> Tensor:
    """Return ``exp(-|x|) * I(0, x)``. Error in float32: 5e-7, in float64: 2e-15."""
    return _scaled_first(x.abs(), 0)


@decomposes_in_float(aten.special_i1e.default)
def i1e(x: Tensor) -> Tensor:
    """Return ``exp(-|x|) * I(1, x)``. Error in float32: 1e-6, in float64: 2e-15."""
    magnitude = _scaled_first(x.abs(), 1)
    return torch.where(x < 0, -magnitude, magnitude)


@decomposes_in_float(aten.i0.default, aten.special_modified_bessel_i0.default)
def i0(x: Tensor) -> Tensor:
    """Return ``I(0, x)``; infinite where ``exp(|x|)`` is. Error in float32: 5e-7, in float64: 2e-15."""
    return torch.exp(x.abs()) * _scaled_first(x.abs(), 0)


@decomposes_in_float(aten.special_i1.default, aten.special_modified_bessel_i1.default)
def i1(x: Tensor) -> Tensor:
    """Return ``I(1, x)``; infinite where ``exp(|x|)`` is. Error in float32: 1e-6, in float64: 2e-15."""
    magnitude = torch.exp(x.abs()) * _scaled_first(x.abs(), 1)
    return torch.where(x < 0, -magnitude, magnitude)


def _second(x: Tensor, order: int, *, scaled: bool) -> Tensor:
    """Return ``K(order, x)``, times ``exp(x)`` if ``scaled``: infinite at zero, NaN for negative x."""
    near = torch.square(x / 2)
    logarithm = torch.log(x / 2) * torch.exp(x) * _scaled_first(x, order)
    small = series("K0_SMALL")(near) - logarithm if order == 0 else series("K1_SMALL")(near) / x + logarithm
    large = series(f"K{order}_LARGE")(2 / x) * torch.rsqrt(x)
    if scaled:
        small = torch.exp(x) * small
    else:
        large = torch.exp(-x) * large
    result = torch.where(x < 2, small, large)
    return torch.where(x == 0, torch.inf, torch.where(x < 0, torch.nan, result))


@decomposes_in_float(aten.special_modified_bessel_k0.default)
def modified_bessel_k0(x: Tensor) -> Tensor:
    """Return ``K(0, x)``. Error in float32: 1e-6 to 80, in float64: 2e-15."""
    return _second(x, 0, scaled=False)


@decomposes_in_float(aten.special_modified_bessel_k1.default)
def modified_bessel_k1(x: Tensor) -> Tensor:
    """Return ``K(1, x)``. Error in float32: 1e-6 to 80, in float64: 2e-15."""
    return _second(x, 1, scaled=False)


@decomposes_in_float(aten.special_scaled_modified_bessel_k0.default)
def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """Return ``exp(x) * K(0, x)``. Error in float32: 1e-6, in float64: 2e-15."""
    return _second(x, 0, scaled=True)


@decomposes_in_float(aten.special_scaled_modified_bessel_k1.default)
def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """Return ``exp(x) * K(1, x)``. Error in float32: 1e-6, in float64: 2e-15."""
    return _second(x, 1, scaled=True)


MODIFIED_BESSEL = (
    *(i0e, i1e, i0, i1, modified_bessel_k0, modified_bessel_k1),
    *(scaled_modified_bessel_k0, scaled_modified_bessel_k1),
)
