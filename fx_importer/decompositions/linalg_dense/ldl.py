"""Rules of LDL factorizations and solves of symmetric and Hermitian matrices, which may be indefinite."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.eigh_svd import from_lower_triangle
from fx_importer.decompositions.linalg_dense.error_checks import checked
from fx_importer.decompositions.linalg_dense.lu import pivot_magnitude, swap_rows
from fx_importer.decompositions.linalg_dense.row_loops import (
    column,
    conjugate,
    counted_loop,
    diagonal,
    indices_along,
    is_inexact,
    real,
    row,
    transposed,
)
from fx_importer.fx_graph.operators import aten

_ALPHA = (1 + 17**0.5) / 8
"""Equalizes the growth bounds of one 2 × 2 and two 1 × 1 pivots (Bunch and Kaufman, 1977)."""


def _symmetric_from_lower(a: Tensor, hermitian: bool) -> Tensor:
    """Return the symmetric or Hermitian matrix given by its lower triangle."""
    return from_lower_triangle(a) if hermitian or not a.is_complex() else torch.tril(a) + transposed(torch.tril(a, -1))


def _times_inverse_block(
    a: Tensor, b: Tensor, c: Tensor, x: Tensor, y: Tensor, hermitian: bool
) -> tuple[Tensor, Tensor]:
    """Return the row ``[x, y]`` times the inverse of ``[[a, conj(b)], [b, c]]``, or of ``[[a, b], [b, c]]``.

    All is divided by ``b`` first, or by its magnitude, which pivoting made the largest (LAPACK's ``sytf2``).
    """
    size = b.abs().to(b.dtype) if hermitian else b
    phase = b / size
    bottom = size * ((a / size) * (c / size) - 1)
    return ((c / size) * x - phase * y) / bottom, ((a / size) * y - conjugate(phase) * x) / bottom


def _choose_pivot(rest: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether column ``k`` is zero, whether the pivot is a block of two, and the row to exchange with.

    Pivots are chosen as by Bunch and Kaufman (Golub & Van Loan, 4.4.4): the diagonal element of row ``k`` or of another
    row, or the block of both.
    """
    at = indices_along(rest, -1)
    here, below = at == k, at > k
    entries = column(rest, here)
    top = pivot_magnitude(column(entries, here)).unsqueeze(-1)
    sizes = torch.where(below, pivot_magnitude(entries), -1.0)
    largest = torch.clamp(sizes.amax(-1, keepdim=True), min=0.0)
    other = torch.where(torch.logical_and(below, sizes == largest), at, rest.shape[-1] - 1).amin(-1, keepdim=True)
    candidate = pivot_magnitude(column(rest, at == other))
    off_diagonal = torch.where(torch.logical_and(at >= k, at != other), candidate, 0.0).amax(-1, keepdim=True)
    zero = torch.maximum(top, largest) == 0
    enough = torch.logical_or(zero, top >= _ALPHA * largest)
    ratio = largest / torch.where(off_diagonal == 0, 1.0, off_diagonal)
    enough = torch.logical_or(enough, top >= _ALPHA * largest * ratio)
    exchanged = torch.logical_not(enough)
    single = column(candidate, at == other).unsqueeze(-1) >= _ALPHA * off_diagonal
    two = torch.logical_and(exchanged, torch.logical_not(single))
    return zero, two, torch.where(exchanged, other, k)


def packed_ldl(a: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``L`` and ``D`` packed in one matrix, the pivots, and ``info``, as LAPACK's ``sytrf`` and ``hetrf``.

    Each step takes one pivot or a block of two (Golub & Van Loan, 4.4.4), and each matrix of a batch takes steps of its
    own. The lower triangle is factored. Pivots count from 1; both pivots of a block are minus the row that the
    second was exchanged with. ``info`` is the first pivot, from 1, that is zero.
    """
    size = a.shape[-1]
    pivots = torch.zeros(a.shape[:-1], dtype=torch.int32, device=a.device)
    info = torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)
    if is_empty(a):
        return torch.zeros_like(a), pivots, info

    def step(i: Tensor, rest: Tensor, out: Tensor, pivots: Tensor, info: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        at = indices_along(rest, -1)
        here = at == k
        zero, two, chosen = _choose_pivot(rest, k)
        second = torch.where(two, k + 1, k)
        rest = swap_rows(transposed(swap_rows(rest, second, chosen)), second, chosen)
        rest = transposed(rest)

        there = at == k + 1
        x, y = column(rest, here), column(rest, there)
        first, between, last = column(x, here), column(x, there), column(y, there)
        if hermitian:
            first, last = (real(position).to(rest.dtype) for position in (first, last))
        first, between, last = (position.unsqueeze(-1) for position in (first, between, last))
        after = at > second
        x, y = torch.where(after, x, 0.0), torch.where(torch.logical_and(after, two), y, 0.0)
        left, right = _times_inverse_block(
            first, torch.where(two, between, 1.0), torch.where(two, last, 0.0), x, y, hermitian
        )
        left = torch.where(two, left, x / torch.where(first == 0, 1.0, first))
        right = torch.where(two, right, 0.0)
        for factors, factor in ((left, x), (right, y)):
            rest = rest - factors.unsqueeze(-1) * (conjugate(factor) if hermitian else factor).unsqueeze(-2)

        left = torch.where(here, first, torch.where(torch.logical_and(there, two), between, left))
        out = torch.where(here.unsqueeze(-2), left.unsqueeze(-1), out)
        right = torch.where(there, last, right)
        out = torch.where(torch.logical_and(there, two).unsqueeze(-2), right.unsqueeze(-1), out)
        chosen = torch.where(two, -1 - chosen, chosen + 1).to(torch.int32)
        pivots = torch.where(torch.logical_or(here, torch.logical_and(there, two)), chosen, pivots)
        failed = torch.logical_and(torch.logical_and(zero, k < size).squeeze(-1), info == 0)
        info = torch.where(failed, (k + 1).to(torch.int32).squeeze(-1), info)
        return rest, out, pivots, info, second + 1

    start = torch.zeros(*a.shape[:-2], 1, dtype=torch.int64, device=a.device)
    mirrored = _symmetric_from_lower(a, hermitian)
    _, out, pivots, info, _ = counted_loop(size, step, mirrored, torch.zeros_like(mirrored), pivots, info, start)
    return out, pivots, info


def solve_packed(packed: Tensor, pivots: Tensor, b: Tensor, hermitian: bool) -> Tensor:
    """Return ``x`` of ``a @ x == b``, for the ``a`` that `packed_ldl` factored."""
    size = packed.shape[-1]
    batch = torch.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    packed, b = packed.expand(*batch, size, size), b.expand(*batch, *b.shape[-2:])
    pivots = pivots.expand(*batch, size)
    if is_empty(packed) or is_empty(b):
        return torch.zeros_like(b)
    at = indices_along(packed, -1)
    paired = pivots < 0
    before = torch.where(at <= at.unsqueeze(-1), paired.unsqueeze(-2), False)
    odd = before.to(torch.int32).sum(-1, dtype=torch.int32) % 2 == 1
    first, second = torch.logical_and(paired, odd), torch.logical_and(paired, torch.logical_not(odd))
    between = torch.logical_and(at.unsqueeze(-1) == at + 1, first.unsqueeze(-2))
    lower = torch.where(between, 0.0, torch.tril(packed, -1))
    with_ = torch.where(second, at, pivots.abs().to(torch.int64) - 1)
    rows = torch.where(first, at + 1, at)

    def forward(i: Tensor, b: Tensor, lower: Tensor, rows: Tensor, with_: Tensor) -> tuple[Tensor]:
        here = indices_along(lower, -1) == i
        b = swap_rows(b, _select_index(rows, here), _select_index(with_, here))
        return (b - column(lower, here).unsqueeze(-1) * row(b, here).unsqueeze(-2),)

    def backward(i: Tensor, b: Tensor, lower: Tensor, rows: Tensor, with_: Tensor) -> tuple[Tensor]:
        here = indices_along(lower, -1) == size - 1 - i
        entries = column(lower, here)
        product = ((conjugate(entries) if hermitian else entries).unsqueeze(-1) * b).sum(-2, keepdim=True)
        b = torch.where(here.unsqueeze(-1), b - product, b)
        return (swap_rows(b, _select_index(rows, here), _select_index(with_, here)),)

    b = counted_loop(size, forward, b, invariants=(lower, rows, with_))[0]
    b = _solve_block_diagonal(b, diagonal(packed), torch.where(between, packed, 0.0), first, second, hermitian)
    return counted_loop(size, backward, b, invariants=(lower, rows, with_))[0]


def _select_index(indices: Tensor, here: Tensor) -> Tensor:
    return torch.where(here, indices, 0).sum(-1, keepdim=True)


def _solve_block_diagonal(
    b: Tensor, values: Tensor, between: Tensor, first: Tensor, second: Tensor, hermitian: bool
) -> Tensor:
    """Return ``D**-1 @ b``; ``between`` holds the subdiagonal of ``D``."""
    after = (between != 0).to(b.dtype)  # moves the second row of a block to the first
    other = transposed(after) @ b + after @ b
    of_other = (transposed(after) @ values.unsqueeze(-1) + after @ values.unsqueeze(-1)).squeeze(-1)
    below = between.sum(-2) + between.sum(-1)
    paired = torch.logical_or(first, second)
    size = torch.where(paired, below.abs().to(b.dtype) if hermitian else below, 1.0)
    phase = torch.where(paired, below, 1.0) / size
    phase = torch.where(first, conjugate(phase), phase) if hermitian else phase
    bottom = size * ((values / size) * (of_other / size) - 1)
    solved = ((of_other / size).unsqueeze(-1) * b - phase.unsqueeze(-1) * other) / bottom.unsqueeze(-1)
    alone = b / torch.where(paired, 1.0, values).unsqueeze(-1)
    return torch.where(paired.unsqueeze(-1), solved, alone)


@decomposes(aten.linalg_ldl_factor_ex.default)
def ldl_factor_ex(a: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """Return the packed factors, the pivots and ``info``."""
    return checked(packed_ldl(a, hermitian), check_errors, "ldl_factor") if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_ldl_factor.default)
def ldl_factor(a: Tensor, *, hermitian: bool = False) -> Any:
    """Return the packed factors and the pivots."""
    return ldl_factor_ex.rule(a, hermitian=hermitian, check_errors=True)[:2] if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_ldl_solve.default)
def ldl_solve(packed: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool = False) -> Any:
    """Return the solution."""
    return solve_packed(packed, pivots, b, hermitian) if is_inexact(packed, b) else NotImplemented


LDL: tuple[Decomposition, ...] = (ldl_factor_ex, ldl_factor, ldl_solve)
