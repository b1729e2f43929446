"""Rules of triangular solves, and of Cholesky factors of Hermitian (real: symmetric) positive definite matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.error_checks import checked
from fx_importer.decompositions.linalg_dense.row_loops import (
    adjoint,
    column,
    conjugate,
    counted_loop,
    identity,
    indices_along,
    is_inexact,
    real,
    row,
    transposed,
)
from fx_importer.fx_graph.operators import aten


def substitute(a: Tensor, b: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """Return ``x`` of ``a @ x == b`` by substitution, row by row (Golub & Van Loan, 3.1).

    Only one triangle of ``a`` is read.
    """
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    size = a.shape[-1]
    a, b = a.expand(*batch, size, size), b.expand(*batch, *b.shape[-2:])
    if is_empty(a) or is_empty(b):
        return torch.zeros_like(b)
    a = torch.triu(a) if upper else torch.tril(a)

    def step(i: Tensor, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor]:
        here = indices_along(a, -1) == (size - 1 - i if upper else i)
        left = row(a, here).unsqueeze(-1)
        rest = row(b, here) - (left * x).sum(-2)
        solved = rest if unit else rest / column(left.squeeze(-1), here).unsqueeze(-1)
        return (torch.where(here.unsqueeze(-1), solved.unsqueeze(-2), x),)

    return counted_loop(size, step, torch.zeros_like(b), invariants=(a, b))[0]


def cholesky_factor(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``L`` with ``L @ L.mH == a``, and the 1-based step that met a non-positive pivot, or 0.

    The right-looking form (Golub & Van Loan, 4.2) subtracts the outer product of each finished column from the rest.
    Only the lower triangle is read.
    """
    if is_empty(a):
        return torch.zeros_like(a), torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)

    def step(i: Tensor, a: Tensor, info: Tensor) -> tuple[Tensor, Tensor]:
        at = indices_along(a, -1)
        here = at == i
        entries = column(a, here)
        pivot = real(column(entries, here))
        info = torch.where(torch.logical_and(info == 0, torch.logical_not(pivot > 0)), (i + 1).to(torch.int32), info)
        entries = torch.where(at >= i, entries / torch.sqrt(pivot).unsqueeze(-1), 0.0)
        below = torch.where(at > i, entries, 0.0)
        rest = a - below.unsqueeze(-1) * conjugate(below).unsqueeze(-2)
        return torch.where(here, entries.unsqueeze(-1), rest), info

    info = torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)
    factor, info = counted_loop(a.shape[-1], step, a, info)
    return torch.tril(factor), info


@decomposes(aten.linalg_cholesky_ex.default)
def cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Return the factor and ``info``."""
    if not is_inexact(a):
        return NotImplemented
    factor, info = cholesky_factor(adjoint(a, upper))
    return checked((adjoint(factor, upper), info), check_errors, "cholesky")


@decomposes(aten.linalg_cholesky.default)
def cholesky(a: Tensor, *, upper: bool = False) -> Any:
    """Return the factor; NaN where there is none, if assertions are dropped."""
    return cholesky_ex.rule(a, upper=upper, check_errors=True)[0] if is_inexact(a) else NotImplemented


@decomposes(aten.cholesky.default)
def deprecated_cholesky(a: Tensor, upper: bool = False) -> Any:
    """Return `cholesky`, by the older operator."""
    return cholesky.rule(a, upper=upper)


@decomposes(aten.cholesky_solve.default)
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Any:
    """Return ``x`` of ``L @ L.mH @ x == b``."""
    if not is_inexact(b, factor):
        return NotImplemented
    lower = adjoint(factor, upper)
    return substitute(adjoint(lower), substitute(lower, b, upper=False), upper=True)


@decomposes(aten.cholesky_inverse.default)
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    """Return the inverse of ``L @ L.mH``."""
    return cholesky_solve.rule(identity(factor, *factor.shape[-2:]), factor, upper)


@decomposes(aten.linalg_solve_triangular.default)
def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """Return ``x`` of ``a @ x == b``, or of ``x @ a == b``."""
    if not is_inexact(a, b):
        return NotImplemented
    if left:
        return substitute(a, b, upper=upper, unit=unitriangular)
    return transposed(substitute(transposed(a), transposed(b), upper=not upper, unit=unitriangular))


@decomposes(aten.triangular_solve.default)
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Return ``x`` of ``a @ x == b`` or ``a.mT @ x == b``, and ``a``, broadcast to each other's batch."""
    if not is_inexact(a, b):
        return NotImplemented
    x = substitute(transposed(a, transpose), b, upper=upper != transpose, unit=unitriangular)
    return x, a.expand(*x.shape[:-2], *a.shape[-2:]).clone()


CHOLESKY: tuple[Decomposition, ...] = (
    *(cholesky_ex, cholesky, deprecated_cholesky, cholesky_solve, cholesky_inverse),
    *(solve_triangular, triangular_solve),
)
