"""Rules of lgamma, digamma, polygamma and Hurwitz's zeta function.

Sources: DLMF 5.5.1 and 5.5.3 (recurrence, reflection), 5.11.1 (Stirling), 25.11.5 (Euler and Maclaurin), 25.11.12
(polygamma by zeta). The Chebyshev series are our own (``benchmarks/special_series.py``). The number of leading terms of
zeta's sum, nine, is from Cephes (Stephen L. Moshier), as in eager's zeta. Errors are relative, or
absolute where the function is below 1.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.special.chebyshev import decomposes_in_float, series
from fx_importer.fx_graph.operators import aten

_ROOT = (1.4616321325302124, 1.2438149936341261e-08)
"""The root of digamma: rounded to float32, and the remainder."""
_HALF_LOG_2PI = math.log(2 * math.pi) / 2


def log_gamma_correction(x: Tensor) -> Tensor:
    """Return ``lgamma(x) - (x - 1/2) * log(x) + x - log(2 pi) / 2``, for x from 3."""
    return series("LOG_GAMMA_CORRECTION")(torch.square(3 / x)) / x


def log_gamma(x: Tensor) -> Tensor:
    """Return ``log(|gamma(x)|)`` for x above -1/1000: a series up to 3, Stirling's formula from there."""
    near = torch.where(x < 1, x + 1, x)
    small = (near - 1) * (near - 2) * series("LOG_GAMMA")(near)
    small = torch.where(x < 1, small - torch.log(x.abs()), small)
    far = torch.where(x < 3, 3, x)
    stirling = (far - 0.5) * (torch.log(far) - 1) + (log_gamma_correction(far) + _HALF_LOG_2PI - 0.5)
    return torch.where(x < 3, small, torch.where(far == torch.inf, far, stirling))


def _from_nearest_integer(x: Tensor) -> Tensor:
    """Return ``x - n`` for the nearest integer n, exactly."""
    return x - torch.floor(x + 0.5)


@decomposes_in_float(aten.lgamma.default)
def lgamma(x: Tensor) -> Tensor:
    """Return ``log(|gamma(x)|)``, infinite at a pole; for negative x by reflection.

    Error in float32: 9e-7, in float64: 1e-14, from -20 to 1e30.
    """
    left = x < -1e-3
    straight = log_gamma(torch.where(left, 1 - x, x))
    sine = torch.sin(math.pi * _from_nearest_integer(x)).abs()
    reflected = math.log(math.pi) - torch.log(sine) - straight
    return torch.where(x == -torch.inf, torch.inf, torch.where(left, reflected, straight))


@decomposes_in_float(aten.digamma.default)
def digamma(x: Tensor) -> Tensor:
    """Return the derivative of `lgamma`: NaN at negative integers, infinite at zero, by the sign of zero.

    Error in float32: 2e-7 right of zero, 2e-6 from -20, in float64: 1e-13.
    """
    left = x < -1e-3
    y = torch.where(left, 1 - x, x)
    near = torch.where(y < 1, y + 1, y)
    small = (near - _ROOT[0] - _ROOT[1]) * series("DIGAMMA")(near)
    small = torch.where(y < 1, small - 1 / y, small)
    square = torch.square(1 / y)
    large = torch.log(y) - 0.5 / y - square * series("DIGAMMA_CORRECTION")(9 * square)
    straight = torch.where(y < 3, small, large)
    angle = math.pi * _from_nearest_integer(x)
    reflected = straight - math.pi * torch.cos(angle) / torch.sin(angle)
    return torch.where(left, torch.where(angle == 0, torch.nan, reflected), straight)


_TERMS = 9
"""Number of leading terms of the sum, before the Euler-Maclaurin remainder."""
_BERNOULLI = (
    *(1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000),
    *(1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000),
)
"""``B(2 k) / (2 k)!`` from k = 1."""


def _zeta_right(s: Tensor, q: Tensor) -> Tensor:
    """Return ``sum((q + k) ** -s)`` over k from 0, for q above 0 and s above 1."""
    single = s.dtype == torch.float32
    steps = torch.arange(_TERMS, dtype=s.dtype, device=s.device)
    total = torch.sum(torch.pow(q.unsqueeze(-1) + steps, -s.unsqueeze(-1)), -1)
    end = q + _TERMS
    last = torch.pow(end, -s)
    total = total + torch.pow(end, 1 - s) / (s - 1) + last / 2
    factor = s * last / end
    for k, coefficient in enumerate(_BERNOULLI[:5] if single else _BERNOULLI):
        total = total + coefficient * factor
        factor = factor * ((s + (2 * k + 1)) / end) * ((s + (2 * k + 2)) / end)
    return total


def _zeta(s: Tensor, q: Tensor) -> Tensor:
    """Return ``sum((q + k) ** -s)`` over k from 0, for s above 1 of the shape of q.

    For negative q, where s must be an integer, the sum is split into three sums of positive q: with f the fraction of
    q, ``zeta(s, f) + (-1)**s * (zeta(s, 1 - f) - zeta(s, 1 - q))``.
    """
    left = q < 0
    below, above = torch.floor(q), torch.ceil(q)
    # Unused lanes take any positive number: TOSA's power is undefined for others.
    first = torch.where(left & (below != q), q - below, torch.where(q > 0, q, 1))
    starts = (first, torch.where(left & (below != q), above - q, 1), torch.where(left, 1 - q, 1))
    sums = _zeta_right(s.unsqueeze(-1), torch.stack(starts, -1))
    straight, mirrored, rest = (sums.select(-1, k) for k in range(3))
    odd = s - 2 * torch.floor(s / 2) == 1
    # Subtract the two similar terms first: half way between two integers they cancel.
    result = torch.where(odd, straight - mirrored + rest, straight + mirrored - rest)
    result = torch.where(left, result, straight)
    result = torch.where((q <= 0) & (q == below), torch.inf, result)
    return torch.where(q.isnan(), q, result)


@decomposes_in_float(
    aten.special_zeta.default,
    *(aten.special_zeta.other_scalar, aten.special_zeta.self_scalar),
)
def zeta(s: Tensor, q: Tensor) -> Tensor:
    """Return Hurwitz's zeta function.

    Infinite for s = 1 and for q zero or a negative integer; NaN for s below 1, or where q is negative and s no integer.
    At infinity it is 0, where eager returns NaN.

    Error in float32: 5e-7 for s to 30 and q from 1/10 to 1e6, in float64: 1e-15.
    """
    s, q = torch.broadcast_tensors(s, q)
    result = _zeta(torch.where(s > 1, s, 2), q)
    result = torch.where((q < 0) & (q != torch.floor(q)) & (s != torch.floor(s)), torch.nan, result)
    return torch.where(s > 1, result, torch.where(s == 1, torch.inf, torch.nan))


@decomposes(aten.polygamma.default)
def polygamma(n: int, x: Tensor) -> Any:
    """Return the n-th derivative of `digamma`: ``(-1)**(n + 1) * n! * zeta(n + 1, x)``.

    At infinity it is 0, where eager returns NaN.

    Error in float32: 5e-7 for n from 1 to 5 and x from 1/1000 to 1000; for negative x, of the largest term.
    """
    if n == 0:
        return digamma(x)
    scale = math.factorial(n) * (-1.0) ** (n + 1)

    def derivative(x: Tensor) -> Tensor:
        return scale * _zeta(torch.full_like(x, n + 1), x)

    return decomposes_in_float(aten.polygamma.default)(derivative)(x)


GAMMA = (lgamma, digamma, zeta, polygamma)
