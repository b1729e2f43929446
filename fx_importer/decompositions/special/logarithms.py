"""Rules of logaddexp, log1p, expm1, logarithms of other bases, and exp2.

`log1p` is Kahan's, as in Higham, "Accuracy and Stability of Numerical Algorithms", 1.14.1; so are `expm1` and
`tosa_log1p`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.elementwise.powers import tosa_power_of_scalar
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.special.chebyshev import decomposes_in_float
from fx_importer.fx_graph.operators import aten


def _log_sum(a: Tensor, b: Tensor) -> Tensor:
    """Return ``log(exp(a) + exp(b))``, for infinities too."""
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    same = a == b  # two infinities have no difference
    return large + torch.log1p(torch.exp(torch.where(same, 0, small - large)))


@decomposes_in_float(aten.logaddexp.default)
def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """Return ``log(exp(a) + exp(b))``."""
    return _log_sum(a, b)


@decomposes_in_float(aten.logaddexp2.default)
def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    """Return ``log2(2**a + 2**b)``."""
    log_two = math.log(2)
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    return large + torch.log1p(torch.exp(torch.where(a == b, 0, small - large) * log_two)) / log_two


@decomposes_in_float(aten.log1p.default)
def log1p(x: Tensor) -> Tensor:
    """Return ``log(1 + x)``: the logarithm of the rounded sum, times x over the difference of that sum and 1.

    Relative error in float32: 4e-7 from -0.9999 to 1e30.
    """
    sum_ = 1 + x
    added = torch.where(sum_ == 1, 1, sum_ - 1)
    log = torch.log(torch.where(sum_ < 0, torch.nan, sum_)) * (x / added)
    return torch.where(sum_ == 1, x, torch.where(x == torch.inf, x, log))


@decomposes_in_float(aten.expm1.default)
def expm1(x: Tensor) -> Tensor:
    """Return ``exp(x) - 1``, near zero by Kahan's ``(u - 1) * x / log(u)`` where ``u = exp(x)``."""
    grown = torch.exp(x)
    small = (x.abs() < 1.0) & (grown != 1.0)
    near = (grown - 1.0) * x / torch.log(torch.where(small, grown, 2.0))
    return torch.where(x.abs() < 1.0, torch.where(small, near, x), grown - 1.0)


def _scaled_log(operator: Any, base: float) -> Any:
    return decomposes_in_float(operator)(lambda x: torch.log(x) * (1 / math.log(base)))


log2 = _scaled_log(aten.log2.default, 2)


log10 = _scaled_log(aten.log10.default, 10)


@decomposes(aten.exp2.default)
def tosa_exp2(x: Tensor) -> Tensor:
    """Return ``2**x``, by `tosa_power_of_scalar`."""
    return tosa_power_of_scalar.rule(2.0, x)


@decomposes(aten.log1p.default)
def tosa_log1p(x: Tensor) -> Tensor:
    """Return ``log(1 + x)``, near zero by Kahan's ``log(u) * x / (u - 1)`` where ``u = 1 + x``."""
    if not x.is_floating_point():
        return NotImplemented
    moved = x + 1.0
    small = (x.abs() < 1.0) & (moved != 1.0)
    near = torch.log(moved) * (x / torch.where(small, moved - 1.0, 1.0))
    return torch.where(x.abs() < 1.0, torch.where(small, near, x), torch.log(moved))


LOGARITHMS = (logaddexp, logaddexp2, log1p, expm1, log2, log10)


TOSA_EXPONENTIALS: tuple[Decomposition, ...] = (tosa_exp2, tosa_log1p)
