"""Rules of eigh and svd, by Jacobi's plane rotations.

A round rotates disjoint pairs of columns at once, and then moves the columns on in a round-robin tournament; after ``n
- 1`` rounds, a sweep, each pair has been rotated and the columns are back in order (Golub & Van Loan, 8.5). Of complex
columns, the second of a pair is multiplied by a phase first that makes their inner product real.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.qr import apply_reflections, reflect_to_upper
from fx_importer.decompositions.linalg_dense.row_loops import (
    abs_squared,
    adjoint,
    conjugate,
    counted_loop,
    diagonal,
    identity,
    indices_along,
    is_inexact,
    real,
    scaled_by_largest,
    transposed,
)
from fx_importer.fx_graph.operators import aten

Rotations = tuple[Tensor, Tensor, Tensor | None]
"""The sine, the tangent of half the angle and, of complex columns, the phase of the second column, for each pair.

The cosine is one minus the product of sine and tangent: rounded by itself, it would make lengths grow (Rutishauser,
1966).
"""


_MAX_SWEEPS = 40
"""Limit of sweeps, more than any matrix in the tests needs."""


def _sweep_until_converged(step: Callable[..., tuple[Tensor, ...]], *state: Tensor) -> tuple[Tensor, ...]:
    """Return ``state`` after sweeps of ``worst, *state = step(*state)`` until convergence.

    ``worst`` is the largest cosine between the columns of a pair. A sweep in which it is within the rounding error of a
    sum, in all of the batch, is the last.
    """
    size = state[0].shape[-1]
    bound = torch.finfo(state[0].dtype).eps * size

    def rotate(_: Tensor, before: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        worst, *state_ = step(*state)
        return torch.maximum(before, worst.amax()), *state_

    def sweep(_: Tensor, before: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return counted_loop(size - 1, rotate, torch.zeros_like(before), *state)

    start = torch.ones((), dtype=state[0].dtype.to_real(), device=state[0].device)
    return counted_loop(_MAX_SWEEPS, sweep, start, *state, until=lambda before, *_: before <= bound)[1:]


def _rotations(p: Tensor, q: Tensor, between: Tensor) -> Rotations:
    """Return the rotations, by the smaller angle, that diagonalize ``[[p, between], [conj(between), q]]``."""
    phase = None
    if between.is_complex():
        size = between.abs()
        phase = torch.where(size == 0, 1.0, conjugate(between) / torch.where(size == 0, 1.0, size))
        between = size
    apart = q - p
    below = apart.abs() + torch.sqrt(apart * apart + 4 * (between * between))
    below = torch.where(apart >= 0, torch.where(below == 0, 1.0, below), -below)
    tangent = torch.clamp(2 * between / below, -1.0, 1.0)
    length = torch.sqrt(1 + tangent * tangent)
    return tangent / length, tangent / (1 + length), phase


def _rotate_pairs(x: Tensor, rotations: Rotations) -> Tensor:
    """Rotate column ``k`` with column ``k + n / 2``, for all ``k``, and move all columns but the first one place on."""
    sine, half = (rotation.unsqueeze(-2) for rotation in rotations[:2])
    p, q = x.chunk(2, -1)
    if (phase := rotations[2]) is not None:
        q = q * phase.unsqueeze(-2)
    p, q = p - sine * (q + half * p), q + sine * (p - half * q)
    if p.shape[-1] == 1:
        return torch.cat([p, q], -1)
    return torch.cat([p[..., :1], q[..., :1], p[..., 1:-1], q[..., 1:], p[..., -1:]], -1)


def _pad_to_even(x: Tensor, *, rows: bool = False) -> Tensor:
    """Add a column, and a row, of zeros to an odd number of columns. Rotations leave them unchanged."""
    odd = x.shape[-1] % 2
    return torch.nn.functional.pad(x, (0, odd, 0, odd if rows else 0)) if odd else x


def _sorting_permutation(values: Tensor, *, descending: bool) -> Tensor:
    """Return the permutation ``p`` of each row of ``values`` for which ``values @ p`` is sorted, stably."""
    at = indices_along(values, -1)
    mine, other = values.unsqueeze(-1), values.unsqueeze(-2)
    before = other > mine if descending else other < mine
    before = torch.logical_or(before, torch.logical_and(other == mine, at < at.unsqueeze(-1)))
    rank = before.to(torch.int32).sum(-1, keepdim=True, dtype=torch.int32)
    return (rank == at).to(values.dtype)


def eigh_jacobi(a: Tensor, vectors: bool = True) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues, ascending, and the eigenvectors in columns of the Hermitian ``a``.

    Jacobi's method. The sign, or the phase, of a vector is as the rotations leave it.
    """
    size = a.shape[-1]
    if is_empty(a) or size == 1:
        return real(a).reshape(a.shape[:-1]).clone(), torch.ones_like(a)
    small, scale = scaled_by_largest(a)
    small = _pad_to_even(small, rows=True)

    def step(a: Tensor, *v: Tensor) -> tuple[Tensor, ...]:
        half = a.shape[-1] // 2
        values = real(diagonal(a))
        between = diagonal(a[..., :half, half:])
        worst = between.abs()
        between = torch.where(worst > torch.finfo(a.dtype).eps, between, 0.0)
        rotations = _rotations(values[..., :half], values[..., half:], between)
        turned = _rotate_pairs(adjoint(_rotate_pairs(a, rotations)), rotations)
        return worst, adjoint(turned).contiguous(), *(_rotate_pairs(basis, rotations) for basis in v)

    basis = (identity(small, size, small.shape[-1]),) if vectors else ()
    rest, *bases = _sweep_until_converged(step, small, *basis)
    values = real(diagonal(rest))[..., :size] * scale.squeeze(-1)
    order = _sorting_permutation(values, descending=False)
    values = (values.unsqueeze(-1) * order).sum(-2)
    return values, bases[0][..., :size] @ order.to(a.dtype) if bases else a.new_zeros(0)


def svd_jacobi(a: Tensor, *, full: bool, vectors: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``U``, the singular values, descending, and ``V.mH`` of ``a``; square ``U`` and ``V`` if ``full``.

    One-sided rotations (Hestenes; Golub & Van Loan, 8.6) make the columns of ``a`` orthogonal; their lengths are the
    singular values. Reflections then make an orthonormal basis of them, also where a length is zero.
    """
    rows, columns = a.shape[-2:]
    if rows < columns:
        u, values, v = svd_jacobi(adjoint(a), full=full, vectors=vectors)
        return (adjoint(v), values, adjoint(u)) if vectors else (u, values, v)
    if is_empty(a):
        u = identity(a, rows, rows if full else columns)
        return u.clone(), real(a).new_zeros(*a.shape[:-2], columns), identity(a, columns, columns).clone()
    small, scale = scaled_by_largest(a)
    small = _pad_to_even(small)

    def step(a: Tensor, *v: Tensor) -> tuple[Tensor, ...]:
        p, q = a.chunk(2, -1)
        lengths, between = (abs_squared(p).sum(-2), abs_squared(q).sum(-2)), (conjugate(p) * q).sum(-2)
        product = torch.sqrt(lengths[0]) * torch.sqrt(lengths[1])
        worst = between.abs() / torch.where(product == 0, 1.0, product)
        rotations = _rotations(*lengths, torch.where(worst > torch.finfo(a.dtype).eps, between, 0.0))
        return worst, *(_rotate_pairs(tensor, rotations) for tensor in (a, *v))

    basis = (identity(small, columns, small.shape[-1]),) if vectors else ()
    turned, *bases = _sweep_until_converged(step, small, *basis)
    turned = turned[..., :columns]
    values = torch.sqrt(abs_squared(turned).sum(-2))
    order = _sorting_permutation(values, descending=True)
    values = (values.unsqueeze(-1) * order).sum(-2)
    if not bases:
        return a.new_zeros(0), values * scale.squeeze(-1), a.new_zeros(0)
    order = order.to(a.dtype)
    packed, tau = reflect_to_upper(turned @ order)
    signs = torch.where(real(diagonal(packed)) < 0, -1.0, 1.0).to(values.dtype)
    u = apply_reflections(packed, tau, identity(a, rows, rows if full else columns))
    if u.shape[-1] != columns:
        signs = torch.nn.functional.pad(signs, (0, u.shape[-1] - columns), value=1.0)
    return u * signs.unsqueeze(-2), values * scale.squeeze(-1), adjoint(bases[0][..., :columns] @ order)


def from_lower_triangle(a: Tensor) -> Tensor:
    """Return the symmetric, or Hermitian, matrix given by its lower triangle."""
    if not a.is_complex():
        return torch.tril(a) + transposed(torch.tril(a, -1))
    below = torch.tril(a, -1)
    at = indices_along(a, -1)
    return torch.where(at == at.unsqueeze(-1), real(a), below + adjoint(below))


@decomposes(aten._linalg_eigh.default)
def eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> Any:
    """Return the eigenvalues and, if asked for, the eigenvectors of the matrix given by one triangle."""
    if not is_inexact(a):
        return NotImplemented
    return eigh_jacobi(from_lower_triangle(adjoint(a, uplo.upper() == "U")), compute_v)


@decomposes(aten._linalg_svd.default)
def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """Return ``U``, the singular values and ``V.mH``; without the vectors if they are not asked for."""
    return svd_jacobi(a, full=full_matrices, vectors=compute_uv) if is_inexact(a) else NotImplemented


EIGH_SVD: tuple[Decomposition, ...] = (eigh, svd)
