"""Rules of eig and eigvals of general matrices: the QR algorithm with one complex shift."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.qr import householder_reflector
from fx_importer.decompositions.linalg_dense.row_loops import (
    abs_squared,
    adjoint,
    column,
    conjugate,
    counted_loop,
    diagonal,
    identity,
    indices_along,
    is_inexact,
    row,
    scaled_by_largest,
)
from fx_importer.fx_graph.operators import aten

_STEPS_PER_EIGENVALUE = 30
"""Limit of steps per eigenvalue; two or three suffice for most."""

_EXCEPTIONAL_SHIFT_PERIOD = 10
"""Period of exceptional shifts, which break symmetries that stall the iteration."""


def reduce_to_hessenberg(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``H``, upper Hessenberg, and ``Q``, with ``Q @ H @ Q.mH == a`` (Golub & Van Loan, 7.4)."""

    def step(i: Tensor, h: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        at = indices_along(h, -1)
        entries = column(h, at == i)
        vector, factor, top = householder_reflector(entries, i + 1)
        factor = factor.unsqueeze(-1)
        product = (conjugate(vector).unsqueeze(-1) * h).sum(-2) * conjugate(factor)
        h = h - vector.unsqueeze(-1) * product.unsqueeze(-2)
        stored = torch.where(at <= i, entries, torch.where(at == i + 1, top.unsqueeze(-1), 0.0))
        h = torch.where(at == i, stored.unsqueeze(-1), h)
        return _apply_reflector(h, vector, factor), _apply_reflector(q, vector, factor)

    h, q = counted_loop(a.shape[-1] - 2, step, a, identity(a, *a.shape[-2:]))
    return h, q


def _apply_reflector(x: Tensor, vector: Tensor, factor: Tensor) -> Tensor:
    product = (x * vector.unsqueeze(-2)).sum(-1) * factor
    return x - product.unsqueeze(-1) * conjugate(vector).unsqueeze(-2)


def _subdiagonal(h: Tensor, at: Tensor) -> Tensor:
    """Return the elements left of the diagonal, by row; zero for the first."""
    return torch.where(at.unsqueeze(-1) == at + 1, h, 0.0).sum(-1)


def _deflate(h: Tensor, values: Tensor, under: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``h`` with negligible subdiagonal elements set to zero, and the first and last row of the last block.

    ``values`` is the diagonal of ``h``, ``under`` the subdiagonal by row. An element is negligible relative
    to its two neighbours on the diagonal, or to the largest element if these are zero.
    """
    at = indices_along(h, -1)
    below = at.unsqueeze(-1) == at + 1
    sizes = values.abs()
    around = sizes + torch.where(below, sizes.unsqueeze(-2), 0.0).sum(-1)
    around = torch.where(around == 0, h.abs().amax((-2, -1)).unsqueeze(-1), around)
    open_ = under.abs() > torch.finfo(h.dtype).eps * around
    h = torch.where(torch.logical_and(below, torch.logical_not(open_).unsqueeze(-1)), 0.0, h)
    last = torch.where(open_, at, 0).amax(-1, keepdim=True)
    closed = torch.logical_and(torch.logical_not(open_), at <= last)
    return h, torch.where(closed, at, 0).amax(-1, keepdim=True), last


def schur_form(h: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``T``, upper triangular, and the unitary ``Q`` of the Schur form, given `reduce_to_hessenberg`'s.

    A step chases the bulge that the shift makes down the last unreduced block, by rotations of neighbouring rows and
    columns (Golub & Van Loan, 7.5, with one complex shift: the eigenvalue of the block's trailing 2 × 2 matrix that is
    nearest to its last element). Each matrix of a batch has a block of its own.
    """
    size = h.shape[-1]

    def step(i: Tensor, h: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        at = indices_along(h, -1)
        values, under = diagonal(h), _subdiagonal(h, at)
        h, first, last = _deflate(h, values, under)

        end = column(under, at == last)
        shift = _wilkinson_shift(
            column(values, at == last - 1), column(values, at == last), _superdiagonal(h, last), end
        )
        shift = torch.where(
            i % _EXCEPTIONAL_SHIFT_PERIOD == _EXCEPTIONAL_SHIFT_PERIOD - 1,
            column(values, at == last) + 0.75 * end.abs(),
            shift,
        )

        def rotate(k: Tensor, h: Tensor, q: Tensor, first: Tensor, last: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
            at = indices_along(h, -1)
            here, there = at == k, at == k + 1
            first, last = first.squeeze(-1), last.squeeze(-1)
            # The first rotation is of the shifted column; each other one annihilates the bulge of the one before.
            start = k == first
            read = torch.where(start, k, k - 1).unsqueeze(-1) == at
            upper, lower = column(row(h, here), read), column(row(h, there), read)
            upper = torch.where(start, upper - shift, upper)
            length = torch.sqrt(abs_squared(upper) + abs_squared(lower))
            idle = torch.logical_or(torch.logical_or(k < first, k >= last), length == 0)
            length = torch.where(idle, 1.0, length)
            one = torch.where(idle, 1.0, upper / length).unsqueeze(-1)
            other = torch.where(idle, 0.0, lower / length).unsqueeze(-1)
            h = adjoint(_rotate_columns(adjoint(h), one, other, here, there))
            done = torch.logical_and(torch.logical_not(torch.logical_or(idle, start)).unsqueeze(-1), at == k - 1)
            h = torch.where(torch.logical_and(there.unsqueeze(-1), done.unsqueeze(-2)), 0.0, h)
            return _rotate_columns(h, one, other, here, there).contiguous(), _rotate_columns(q, one, other, here, there)

        h, q = counted_loop(size - 1, rotate, h, q, invariants=(first, last, shift))
        return h, q

    def done(h: Tensor, q: Tensor) -> Tensor:
        at = indices_along(h, -1)
        return torch.where(at.unsqueeze(-1) == at + 1, h.abs(), 0.0).amax() == 0

    h, q = counted_loop(_STEPS_PER_EIGENVALUE * size, step, h, q, until=done)
    return torch.triu(h), q


def _superdiagonal(h: Tensor, last: Tensor) -> Tensor:
    """Return the element above the diagonal one of row ``last``."""
    at = indices_along(h, -1)
    chosen = torch.logical_and((at == last - 1).unsqueeze(-1), (at == last).unsqueeze(-2))
    return torch.where(chosen, h, 0.0).sum((-2, -1))


def _wilkinson_shift(a: Tensor, d: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return the eigenvalue of ``[[a, b], [c, d]]`` that is nearest to ``d``."""
    half, product = (a - d) / 2, b * c
    root = torch.sqrt(half * half + product)
    plus, minus = half + root, half - root
    larger = torch.where(plus.abs() >= minus.abs(), plus, minus)
    nothing = larger == 0
    return d - torch.where(nothing, 0.0, product) / torch.where(nothing, 1.0, larger)


def _rotate_columns(x: Tensor, one: Tensor, other: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """Return ``x`` with columns ``here`` and ``there`` rotated by ``[[one, -conj(other)], [other, conj(one)]]``."""
    p, q = column(x, here), column(x, there)
    first, second = one * p + other * q, conjugate(one) * q - conjugate(other) * p
    return torch.where(here, first.unsqueeze(-1), torch.where(there, second.unsqueeze(-1), x))


def triangular_eigenvectors(t: Tensor) -> Tensor:
    """Return the eigenvectors of the upper triangular ``t`` in columns, in the order of its diagonal.

    Where eigenvalues coincide, their difference is replaced by the rounding error of ``t``, as in LAPACK's ``trevc``;
    columns are kept from growing beyond it.
    """
    size = t.shape[-1]
    least = torch.finfo(t.dtype).eps * t.abs().amax((-2, -1)).unsqueeze(-1)
    least = torch.where(least == 0, 1.0, least)

    def step(i: Tensor, x: Tensor, t: Tensor, least: Tensor) -> tuple[Tensor]:
        at = indices_along(t, -1)
        here = at == size - 1 - i
        entries, values = row(t, here), diagonal(t)
        apart = values - column(values, here).unsqueeze(-1)
        apart = torch.where(apart.abs() < least, least.to(t.dtype), apart)
        known = (entries.unsqueeze(-1) * x).sum(-2) / apart
        known = torch.where(here, 1.0, torch.where(at > size - 1 - i, known, 0.0))
        x = torch.where(here.unsqueeze(-1), known.unsqueeze(-2), x)
        return (x / torch.clamp(x.abs().amax(-2, keepdim=True), min=1.0),)

    return counted_loop(size, step, torch.zeros_like(t), invariants=(t, least))[0]


def eig_qr(a: Tensor, vectors: bool = True) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of ``a``, in the order in which they are found, and the eigenvectors in columns.

    An eigenvector has length one, and its largest element is real and positive.
    """
    size = a.shape[-1]
    a = a.to(a.dtype.to_complex())
    if is_empty(a) or size == 1:
        return a.reshape(a.shape[:-1]).clone() if size == 1 else a.new_zeros(a.shape[:-1]), torch.ones_like(a)
    small, scale = scaled_by_largest(a)
    t, q = schur_form(*reduce_to_hessenberg(small))
    values = diagonal(t) * scale.squeeze(-1)
    if not vectors:
        return values, a.new_zeros(0)
    entries = q @ triangular_eigenvectors(t)
    entries = entries / torch.sqrt(abs_squared(entries).sum(-2, keepdim=True))
    lengths, at = entries.abs(), indices_along(entries, -2).unsqueeze(-1)
    largest = torch.where(lengths == lengths.amax(-2, keepdim=True), at, size).amin(-2, keepdim=True)
    top = torch.where(at == largest, entries, 0.0).sum(-2, keepdim=True)
    return values, entries * (conjugate(top) / top.abs())


@decomposes(aten.linalg_eig.default)
def eig(a: Tensor) -> Any:
    """Return the eigenvalues and the eigenvectors."""
    return eig_qr(a) if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_eigvals.default, aten._linalg_eigvals.default)
def eigvals(a: Tensor) -> Any:
    """Return the eigenvalues."""
    return eig_qr(a, vectors=False)[0] if is_inexact(a) else NotImplemented


EIG: tuple[Decomposition, ...] = (eig, eigvals)
