"""Rules of orthogonal polynomials: the recurrence of each, in a loop up to the largest degree.

Source: DLMF 18.9.1, with tables 18.9.1 and 18.9.2. Eager computes the same way, but takes Chebyshev polynomials of a
degree above 6 from a cosine inside the interval. A degree that is a constant of at most 32 is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.loops import while_loop
from fx_importer.decompositions.engine.table import Decomposition, Operator, decomposes
from fx_importer.decompositions.special.chebyshev import any_true, decomposes_in_float
from fx_importer.fx_graph.operators import aten

Step = Callable[[Tensor, Tensor | int, Tensor, Tensor], Tensor]
"""Takes x, the degree n, and the polynomials of the degrees n and n - 1; returns the polynomial of degree n + 1."""


_MAX_UNROLLED_DEGREE = 32
"""Largest constant degree that is unrolled."""


def _recurrence(x: Tensor, n: Tensor, first: Tensor, step: Step) -> Tensor:
    """Return the polynomial of integer degree ``n``: 1 for n = 0, ``first`` for n = 1, then by ``step``."""

    def condition(degree: Tensor, current: Tensor, previous: Tensor, result: Tensor, x: Tensor, n: Tensor) -> Tensor:
        return any_true(n > degree)

    def body(
        degree: Tensor, current: Tensor, previous: Tensor, result: Tensor, x: Tensor, n: Tensor
    ) -> tuple[Tensor, ...]:
        following = step(x, degree, current, previous)
        # A loop may not return its operands.
        return (
            degree + 1,
            following,
            current.clone(),
            torch.where(n > degree, following, result),
            x.clone(),
            n.clone(),
        )

    start = torch.where(n > 0, first, 1)
    one = torch.ones_like(x)
    state = (torch.ones((), dtype=x.dtype), first, one, start, x, n)
    return while_loop(condition, body, state)[3]


def _polynomial(
    *operators: Operator, first: Callable[[Tensor], Tensor], step: Step, limit: bool = False, shifted: bool = False
) -> Decomposition:
    """Return the rule of one family; with a ``limit`` on the degree, NaN beyond, as in eager."""

    def of_tensor(x: Tensor, n: Tensor) -> Tensor:
        x, n = torch.broadcast_tensors(x, n)
        x = 2 * x - 1 if shifted else x
        most = _max_degree(x)
        # Round towards zero; degrees that no int32 holds become negative. Beyond the limit the loop need not run.
        whole = torch.where((n > -1) & (n < 2.0**31), torch.floor(n.abs()), -1)
        inside = torch.where(whole > most, 0, whole) if limit else whole
        result = _recurrence(x, inside, first(x), step)
        result = torch.where(whole > most, torch.nan, result) if limit else result
        return torch.where(whole < 0, 0, result)

    def rule(x: Tensor | float, n: Tensor | float) -> Any:
        if isinstance(n, Tensor) or not isinstance(x, Tensor):
            return decomposes_in_float(*operators)(of_tensor)(x, n)

        def of_number(x: Tensor) -> Tensor:
            x = 2 * x - 1 if shifted else x
            if n <= -1 or (limit and int(n) > _max_degree(x)):
                return torch.full_like(x, 0 if n <= -1 else torch.nan)
            if n > _MAX_UNROLLED_DEGREE:
                return _recurrence(x, torch.full_like(x, int(n)), first(x), step)
            current, previous = torch.ones_like(x), torch.zeros_like(x)
            for degree in range(int(n)):
                current, previous = step(x, degree, current, previous) if degree else first(x), current
            return current

        return decomposes_in_float(*operators)(of_number)(x)

    return decomposes(*operators)(rule)


def _max_degree(x: Tensor) -> int:
    return 128 if x.dtype == torch.float32 else 512


def _chebyshev_step(x: Tensor, _: Tensor | int, current: Tensor, previous: Tensor) -> Tensor:
    return 2 * x * current - previous


def _overloads(name: str) -> tuple[Operator, ...]:
    packet = getattr(aten, name)
    return packet.default, packet.x_scalar, packet.n_scalar


_CHEBYSHEV: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("chebyshev_polynomial_t", lambda x: x.clone()),
    ("chebyshev_polynomial_u", lambda x: 2 * x),
    ("chebyshev_polynomial_v", lambda x: 2 * x - 1),
    ("chebyshev_polynomial_w", lambda x: 2 * x + 1),
)

POLYNOMIALS = (
    *(_polynomial(*_overloads(f"special_{name}"), first=first, step=_chebyshev_step) for name, first in _CHEBYSHEV),
    *(
        _polynomial(*_overloads(f"special_shifted_{name}"), first=first, step=_chebyshev_step, shifted=True)
        for name, first in _CHEBYSHEV
    ),
    _polynomial(
        *_overloads("special_hermite_polynomial_h"),
        first=lambda x: 2 * x,
        step=lambda x, n, current, previous: 2 * (x * current - n * previous),
        limit=True,
    ),
    _polynomial(
        *_overloads("special_hermite_polynomial_he"),
        first=lambda x: x.clone(),
        step=lambda x, n, current, previous: x * current - n * previous,
        limit=True,
    ),
    _polynomial(
        *_overloads("special_laguerre_polynomial_l"),
        first=lambda x: 1 - x,
        step=lambda x, n, current, previous: ((2 * n + 1 - x) * current - n * previous) / (n + 1),
    ),
    _polynomial(
        *_overloads("special_legendre_polynomial_p"),
        first=lambda x: x.clone(),
        step=lambda x, n, current, previous: ((2 * n + 1) * x * current - n * previous) / (n + 1),
    ),
)
