"""Rules of QR factorizations, by Householder reflections."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.row_loops import (
    abs_squared,
    adjoint,
    column,
    conjugate,
    counted_loop,
    identity,
    indices_along,
    is_inexact,
    min_size,
    real,
)
from fx_importer.fx_graph.operators import aten


def householder_reflector(entries: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``v`` and ``tau`` of the reflection that clears ``entries`` below row ``i``, and the new entry ``i``.

    ``v`` is one in row ``i`` and zero above. The element left in row ``i`` is real, and has the sign opposite to the
    one before, so that nothing cancels (``larfg``; Golub & Van Loan, 5.1). A column that is zero below, and real in row
    ``i``, is left unchanged, with a ``tau`` of zero.
    """
    down = indices_along(entries, -1)
    below = torch.where(down > i, entries, 0.0)
    top = column(entries, down == i)
    largest = torch.maximum(torch.amax(below.abs(), -1), top.abs())
    scale = torch.where(largest == 0, 1.0, largest)
    small = torch.where(down >= i, entries, 0.0) / scale.unsqueeze(-1)
    length = torch.sqrt(abs_squared(small).sum(-1)) * scale
    idle = torch.amax(below.abs(), -1) == 0
    if top.is_complex():
        idle = torch.logical_and(idle, top == real(top))
    left = torch.where(real(top) >= 0, -length, length)
    factor = torch.where(idle, 0.0, (left - top) / torch.where(idle, 1.0, left))
    vector = below / torch.where(idle, 1.0, top - left).unsqueeze(-1)
    return torch.where(down == i, 1.0, vector), factor, torch.where(idle, top, left)


def reflect_to_upper(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``R`` with the reflectors below it, and their factors ``tau``, in the convention of LAPACK's ``geqrf``.

    Reflector ``i`` is ``I - tau v v.H``, made of column ``i`` by `householder_reflector`; ``v`` is stored below row
    ``i`` (Golub & Van Loan, 5.2).
    """
    steps = min_size(*a.shape[-2:])
    tau = a.new_zeros(*a.shape[:-2], steps)
    if is_empty(a):
        return torch.zeros_like(a), tau

    def step(i: Tensor, a: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        down, across = indices_along(a, -2), indices_along(a, -1)
        entries = column(a, across == i)
        whole, factor, top = householder_reflector(entries, i)
        product = (conjugate(whole).unsqueeze(-1) * a).sum(-2)
        moved = torch.where(across > i, product * conjugate(factor).unsqueeze(-1), 0.0)
        rest = a - whole.unsqueeze(-1) * moved.unsqueeze(-2)
        stored = torch.where(down > i, whole, torch.where(down == i, top.unsqueeze(-1), entries))
        tau = torch.where(indices_along(tau, -1) == i, factor.unsqueeze(-1), tau)
        return torch.where(across == i, stored.unsqueeze(-1), rest), tau

    packed, tau = counted_loop(steps, step, a, tau)
    return packed, tau


def apply_reflections(packed: Tensor, tau: Tensor, c: Tensor, *, inverse: bool = False) -> Tensor:
    """Return ``Q @ c``, or ``Q.mH @ c``, where ``Q`` is the product of the reflections stored in ``packed``."""
    count = tau.shape[-1]
    if is_empty(c) or is_empty(tau):
        return c.clone()

    def step(i: Tensor, c: Tensor, packed: Tensor, tau: Tensor) -> tuple[Tensor]:
        i = i if inverse else count - 1 - i
        down = indices_along(packed, -2)
        vector = torch.where(down > i, column(packed, indices_along(packed, -1) == i), 0.0)
        vector = torch.where(down == i, 1.0, vector)
        factor = column(tau, indices_along(tau, -1) == i).unsqueeze(-1)
        product = (conjugate(vector).unsqueeze(-1) * c).sum(-2) * (conjugate(factor) if inverse else factor)
        return (c - vector.unsqueeze(-1) * product.unsqueeze(-2),)

    return counted_loop(count, step, c, invariants=(packed, tau))[0]


@decomposes(aten.geqrf.default)
def geqrf(a: Tensor) -> Any:
    """Return ``R`` with the reflectors below it, and their factors."""
    return reflect_to_upper(a) if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_householder_product.default, aten.orgqr.default)
def householder_product(packed: Tensor, tau: Tensor) -> Any:
    """Return the leading columns of ``Q``, as many as ``packed`` has."""
    if not is_inexact(packed, tau):
        return NotImplemented
    return apply_reflections(packed, tau, identity(packed, *packed.shape[-2:]))


@decomposes(aten.ormqr.default)
def ormqr(packed: Tensor, tau: Tensor, c: Tensor, left: bool = True, transpose: bool = False) -> Any:
    """Return ``Q @ c`` or ``c @ Q``, with the adjoint of ``Q`` if asked for."""
    if not is_inexact(packed, tau, c):
        return NotImplemented
    if left:
        return apply_reflections(packed, tau, c, inverse=transpose)
    return adjoint(apply_reflections(packed, tau, adjoint(c), inverse=not transpose))


@decomposes(aten.linalg_qr.default)
def qr(a: Tensor, mode: str = "reduced") -> Any:
    """Return ``Q`` with orthonormal columns and the upper triangular ``R``.

    ``Q`` is square if the mode is ``complete``, and empty if it is ``r``.
    """
    if not is_inexact(a):
        return NotImplemented
    rows, columns = a.shape[-2:]
    size = rows if mode == "complete" else min_size(rows, columns)
    packed, tau = reflect_to_upper(a)
    upper = torch.triu(packed[..., :size, :])
    if mode == "r":
        return a.new_zeros(0), upper
    return apply_reflections(packed, tau, identity(a, rows, size)), upper


@decomposes(aten.qr.default)
def deprecated_qr(a: Tensor, some: bool = True) -> Any:
    """Return `qr`, by the older operator."""
    return qr.rule(a, "reduced" if some else "complete")


QR: tuple[Decomposition, ...] = (geqrf, householder_product, ormqr, qr, deprecated_qr)
