"""Rules of LU factorizations with partial pivoting, and of the solutions, inverses and determinants made of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.cholesky import substitute
from fx_importer.decompositions.linalg_dense.error_checks import checked
from fx_importer.decompositions.linalg_dense.row_loops import (
    column,
    conjugate,
    counted_loop,
    diagonal,
    identity,
    indices_along,
    is_inexact,
    min_size,
    real,
    row,
    transposed,
)
from fx_importer.fx_graph.operators import aten


def packed_lu(a: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``L`` without its ones and ``U`` packed in one matrix, the pivots, and ``info``, as LAPACK's ``getrf``.

    Row ``i`` was exchanged with row ``pivots[i]``, counted from 1: the first of the largest below (Golub & Van Loan,
    3.4). ``info`` is the first step, from 1, whose pivot is zero.
    """
    steps = min_size(*a.shape[-2:])
    pivots = torch.arange(1, steps + 1, dtype=torch.int32, device=a.device).expand(*a.shape[:-2], steps)
    info = torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)
    if is_empty(a):
        return torch.zeros_like(a), pivots.clone(), info

    def step(i: Tensor, a: Tensor, pivots: Tensor, info: Tensor) -> tuple[Tensor, ...]:
        down, across = indices_along(a, -2), indices_along(a, -1)
        if pivot:
            size = torch.where(down >= i, pivot_magnitude(column(a, across == i)), -1.0)
            largest = size == torch.amax(size, -1, keepdim=True)
            chosen = torch.amin(torch.where(largest, down, a.shape[-2] - 1), -1, keepdim=True)
            a = swap_rows(a, i, chosen)
            here = indices_along(pivots, -1) == i
            pivots = torch.where(here, (chosen + 1).to(torch.int32), pivots)
        else:
            pivots = pivots.clone()
        entries, top = column(a, across == i), row(a, down == i)
        divisor = column(top, across == i)
        info = torch.where(torch.logical_and(info == 0, divisor == 0), (i + 1).to(torch.int32), info)
        factors = torch.where(down > i, entries / torch.where(divisor == 0, 1.0, divisor).unsqueeze(-1), 0.0)
        rest = a - factors.unsqueeze(-1) * torch.where(across > i, top, 0.0).unsqueeze(-2)
        kept = torch.logical_and((down > i).unsqueeze(-1), across == i)
        return torch.where(kept, factors.unsqueeze(-1), rest), pivots, info

    packed, pivots, info = counted_loop(steps, step, a, pivots, info)
    return packed, pivots, info


def pivot_magnitude(x: Tensor) -> Tensor:
    """Return what pivots are compared by: of complex numbers ``|re| + |im|``, as in LAPACK."""
    if not x.is_complex():
        return x.abs()
    one, other = parts_of_tensor(x)
    return one.abs() + other.abs()


def swap_rows(x: Tensor, i: Tensor, other: Tensor) -> Tensor:
    """Return each matrix with rows ``i`` and ``other`` exchanged.

    Either may be one index per matrix of the batch, along an axis of size one.
    """
    down = indices_along(x, -2)
    first, second = down == i, down == other
    upper, lower = row(x, first).unsqueeze(-2), row(x, second).unsqueeze(-2)
    return torch.where(first.unsqueeze(-1), lower, torch.where(second.unsqueeze(-1), upper, x))


def apply_pivots(x: Tensor, pivots: Tensor, *, backwards: bool = False) -> Tensor:
    """Return the rows of each matrix after the exchanges of ``pivots``, or with these undone."""
    count = pivots.shape[-1]
    x = x.expand(*torch.broadcast_shapes(x.shape[:-2], pivots.shape[:-1]), *x.shape[-2:])
    if is_empty(x) or is_empty(pivots):
        return x

    def step(i: Tensor, x: Tensor, pivots: Tensor) -> tuple[Tensor]:
        i = count - 1 - i if backwards else i
        at = indices_along(pivots, -1) == i
        return (swap_rows(x, i, torch.where(at, pivots - 1, 0).sum(-1, keepdim=True)),)

    return counted_loop(count, step, x, invariants=(pivots,))[0]


def solve_packed(packed: Tensor, pivots: Tensor, b: Tensor, *, transpose: bool = False) -> Tensor:
    """Return ``x`` of ``a @ x == b``, or of ``a.mT @ x == b``, for the ``a`` that `packed_lu` factored."""
    if transpose:
        x = substitute(transposed(packed), b, upper=False)
        return apply_pivots(substitute(transposed(packed), x, upper=True, unit=True), pivots, backwards=True)
    return substitute(packed, substitute(packed, apply_pivots(b, pivots), upper=False, unit=True), upper=True)


def packed_lu_for_determinant(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first two results of `packed_lu`, of the transpose of contiguous real matrices.

    Eager does the same: the gradients of determinants read the factors of the transpose.
    """
    return packed_lu(transposed(a) if a.is_contiguous() and not a.is_complex() else a)[:2]


def unpack(packed: Tensor, pivots: Tensor, *, permute: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``P``, ``L`` and ``U``, whose product is the matrix; an empty ``P`` if it is not asked for."""
    rows, columns = packed.shape[-2:]
    size = min_size(rows, columns)
    permutation = packed.new_zeros(0)
    if permute:
        permutation = transposed(apply_pivots(identity(packed, rows, rows), pivots)).contiguous()
    lower = torch.tril(packed[..., :size], -1) + torch.eye(rows, size, dtype=packed.dtype, device=packed.device)
    return permutation, lower, torch.triu(packed[..., :size, :])


@decomposes(aten.linalg_lu_factor_ex.default)
def lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Return the packed factors, the pivots and ``info``."""
    return checked(packed_lu(a, pivot), check_errors, "lu_factor") if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_lu_factor.default)
def lu_factor(a: Tensor, *, pivot: bool = True) -> Any:
    """Return the packed factors and the pivots."""
    return lu_factor_ex.rule(a, pivot=pivot, check_errors=True)[:2] if is_inexact(a) else NotImplemented


@decomposes(aten._lu_with_info.default)
def lu_with_info(a: Tensor, pivot: bool = True, check_errors: bool = True) -> Any:
    """Return `lu_factor_ex`, by the older operator."""
    return lu_factor_ex.rule(a, pivot=pivot, check_errors=check_errors)


@decomposes(aten.linalg_lu.default)
def lu(a: Tensor, *, pivot: bool = True) -> Any:
    """Return ``P``, ``L`` and ``U``."""
    return unpack(*packed_lu(a, pivot)[:2], permute=pivot) if is_inexact(a) else NotImplemented


@decomposes(aten.lu_unpack.default)
def lu_unpack(packed: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """Return ``P``, ``L`` and ``U``; those that are not asked for are empty."""
    if not is_inexact(packed):
        return NotImplemented
    permutation, lower, upper = unpack(packed, pivots, permute=unpack_pivots)
    return (permutation, lower, upper) if unpack_data else (permutation, packed.new_zeros(0), packed.new_zeros(0))


@decomposes(aten.linalg_lu_solve.default)
def lu_solve(packed: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    """Return ``x`` of ``a @ x == b``, or of ``x @ a == b``, or with ``a.mH`` for ``a``."""
    if not is_inexact(packed, b):
        return NotImplemented
    packed = conjugate(packed) if adjoint else packed
    if left:
        return solve_packed(packed, pivots, b, transpose=adjoint)
    return transposed(solve_packed(packed, pivots, transposed(b), transpose=not adjoint))


@decomposes(aten.lu_solve.default)
def deprecated_lu_solve(b: Tensor, packed: Tensor, pivots: Tensor) -> Any:
    """Return ``x`` of ``a @ x == b``."""
    return lu_solve.rule(packed, pivots, b)


@decomposes(aten._linalg_solve_ex.default)
def solve_with_factors(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """Return the solution, the packed factors, the pivots and ``info``.

    A ``b`` of one axis less than ``a`` holds vectors.
    """
    if not is_inexact(a, b):
        return NotImplemented
    vectors = b.dim() == 1 or (b.dim() == a.dim() - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
    packed, pivots, info = packed_lu(a)
    x = lu_solve.rule(packed, pivots, b.unsqueeze(-1) if vectors else b, left=left or vectors)
    return checked((x.squeeze(-1) if vectors else x, packed, pivots, info), check_errors, "solve")


@decomposes(aten.linalg_solve_ex.default)
def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """Return the solution and ``info``."""
    if not is_inexact(a, b):
        return NotImplemented
    x, _, _, info = solve_with_factors.rule(a, b, left=left, check_errors=check_errors)
    return x, info


@decomposes(aten.linalg_solve.default)
def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Any:
    """Return the solution; of a singular system, the result of dividing by zero, if assertions are dropped."""
    return solve_with_factors.rule(a, b, left=left, check_errors=True)[0] if is_inexact(a, b) else NotImplemented


@decomposes(aten.linalg_inv_ex.default)
def inv_ex(a: Tensor, *, check_errors: bool = False) -> Any:
    """Return the inverse and ``info``."""
    if not is_inexact(a):
        return NotImplemented
    packed, pivots, info = packed_lu(a)
    return checked((solve_packed(packed, pivots, identity(a, *a.shape[-2:])), info), check_errors, "inv")


@decomposes(aten.linalg_inv.default, aten.inverse.default)
def inv(a: Tensor) -> Any:
    """Return the inverse; of a singular matrix, the result of dividing by zero, if assertions are dropped."""
    return inv_ex.rule(a, check_errors=True)[0] if is_inexact(a) else NotImplemented


def _permutation_sign(pivots: Tensor, like: Tensor) -> Tensor:
    """Return -1 for an odd number of exchanges, else 1, in the real dtype of ``like``."""
    still = pivots == indices_along(pivots, -1) + 1
    return torch.where(still, 1.0, -1.0).to(like.dtype.to_real()).prod(-1)


@decomposes(aten._linalg_det.default)
def det_with_factors(a: Tensor) -> Any:
    """Return the determinant, the packed factors and the pivots."""
    if not is_inexact(a):
        return NotImplemented
    if a.shape[-1] == 0:
        return a.new_ones(a.shape[:-2]), a.clone(), a.new_zeros(a.shape[:-1], dtype=torch.int32)
    packed, pivots = packed_lu_for_determinant(a)
    return diagonal(packed).prod(-1) * _permutation_sign(pivots, a), packed, pivots


@decomposes(aten._linalg_slogdet.default)
def slogdet_with_factors(a: Tensor) -> Any:
    """Return sign and log magnitude of the determinant, the packed factors and the pivots."""
    if not is_inexact(a):
        return NotImplemented
    if a.shape[-1] == 0:
        one = a.new_ones(a.shape[:-2])
        return one, torch.zeros_like(real(one)), a.clone(), a.new_zeros(a.shape[:-1], dtype=torch.int32)
    packed, pivots = packed_lu_for_determinant(a)
    entries = diagonal(packed)
    sign = torch.sgn(entries).prod(-1) * _permutation_sign(pivots, a)
    return sign, torch.log(entries.abs()).sum(-1), packed, pivots


@decomposes(aten.linalg_det.default, aten.det.default)
def det(a: Tensor) -> Any:
    """Return the determinant."""
    return det_with_factors.rule(a)[0] if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_slogdet.default, aten.slogdet.default)
def slogdet(a: Tensor) -> Any:
    """Return sign and log magnitude of the determinant."""
    return slogdet_with_factors.rule(a)[:2] if is_inexact(a) else NotImplemented


@decomposes(aten.logdet.default)
def logdet(a: Tensor) -> Any:
    """Return the logarithm of the determinant, NaN of a negative one of a real matrix."""
    if not is_inexact(a):
        return NotImplemented
    sign, size, _, _ = slogdet_with_factors.rule(a)
    return torch.log(sign) + size if a.is_complex() else torch.where(sign == -1, torch.nan, size)


LU: tuple[Decomposition, ...] = (
    *(lu_factor_ex, lu_factor, lu_with_info, lu, lu_unpack, lu_solve, deprecated_lu_solve),
    *(solve_with_factors, solve_ex, solve, inv_ex, inv),
    *(det_with_factors, slogdet_with_factors, det, slogdet, logdet),
)
