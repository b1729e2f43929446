"""Rules of the pseudo-inverse, the rank and the exponential of a matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.eigh_svd import eigh_jacobi, from_lower_triangle, svd_jacobi
from fx_importer.decompositions.linalg_dense.row_loops import adjoint, counted_loop, identity, is_inexact, transposed
from fx_importer.fx_graph.operators import aten

Tolerance = Tensor | float | None
"""One for all matrices, or one for each of the batch."""


def _above_tolerance(sizes: Tensor, shape: torch.Size, atol: Tolerance, rtol: Tolerance) -> Tensor:
    """Return which of ``sizes`` are above ``max(atol, rtol * largest)``, in matrices of ``shape``.

    By default ``rtol`` is the machine epsilon times the longer side, or zero where an ``atol`` is given.
    """
    if rtol is None:
        rtol = torch.finfo(sizes.dtype).eps * torch.sym_max(*shape[-2:])
        if isinstance(atol, Tensor):
            rtol = torch.where(atol > 0, 0.0, rtol)
        elif atol:
            rtol = 0.0
    above = sizes > torch.amax(sizes, -1, keepdim=True) * _per_matrix(rtol, sizes)
    return above if atol is None else torch.logical_and(above, sizes > _per_matrix(atol, sizes))


def _per_matrix(tolerance: Tensor | float, sizes: Tensor) -> Tensor | float:
    return tolerance.to(sizes.dtype).unsqueeze(-1) if isinstance(tolerance, Tensor) else tolerance


def pseudo_inverse(a: Tensor, atol: Tolerance, rtol: Tolerance, hermitian: bool) -> Tensor:
    """Return ``V / S @ U.mH``, without the singular values below the tolerance."""
    if is_empty(a):
        return transposed(torch.zeros_like(a))
    if hermitian:
        values, right = eigh_jacobi(from_lower_triangle(a))
        left = adjoint(right)
    else:
        u, values, vh = svd_jacobi(a, full=False)
        right, left = adjoint(vh), adjoint(u)
    kept = _above_tolerance(values.abs(), a.shape, atol, rtol)
    inverses = torch.where(kept, 1.0 / torch.where(kept, values, 1.0), 0.0)
    return (right * inverses.unsqueeze(-2)) @ left


@decomposes(aten.linalg_pinv.atol_rtol_tensor, aten.linalg_pinv.atol_rtol_float)
def pinv(a: Tensor, *, atol: Tolerance = None, rtol: Tolerance = None, hermitian: bool = False) -> Any:
    """Return the pseudo-inverse."""
    return pseudo_inverse(a, atol, rtol, hermitian) if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_pinv.default, aten.linalg_pinv.rcond_tensor, aten.pinverse.default)
def pinv_rcond(a: Tensor, rcond: Tensor | float = 1e-15, hermitian: bool = False) -> Any:
    """Return the pseudo-inverse, by a relative tolerance."""
    return pseudo_inverse(a, 0.0, rcond, hermitian) if is_inexact(a) else NotImplemented


def rank(a: Tensor, atol: Tolerance, rtol: Tolerance, hermitian: bool) -> Tensor:
    """Return the number of singular values above the tolerance."""
    if is_empty(a):
        return torch.zeros(a.shape[:-2], dtype=torch.int64, device=a.device)
    if hermitian:
        sizes = eigh_jacobi(from_lower_triangle(a), vectors=False)[0].abs()
    else:
        sizes = svd_jacobi(a, full=False, vectors=False)[1]
    return _above_tolerance(sizes, a.shape, atol, rtol).sum(-1)


@decomposes(aten.linalg_matrix_rank.atol_rtol_tensor, aten.linalg_matrix_rank.atol_rtol_float)
def matrix_rank(a: Tensor, *, atol: Tolerance = None, rtol: Tolerance = None, hermitian: bool = False) -> Any:
    """Return the number of singular values above the tolerance."""
    return rank(a, atol, rtol, hermitian) if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_matrix_rank.default, aten.linalg_matrix_rank.tol_tensor)
def matrix_rank_tol(a: Tensor, tol: Tensor | float, hermitian: bool = False) -> Any:
    """Return the number of singular values above ``tol``."""
    return rank(a, tol, 0.0, hermitian) if is_inexact(a) else NotImplemented


@decomposes(aten.linalg_matrix_exp.default)
def matrix_exp(a: Tensor) -> Any:
    """Return the matrix exponential, by scaling and squaring of a Taylor sum (Golub & Van Loan, 9.3).

    Each matrix is scaled by a power of two of its own to a norm of at most 1/2; the first omitted term is then below
    the machine epsilon: ``2**-9 / 9!`` is 5e-9, ``2**-15 / 15!`` is 2e-17. Half precision is squared in float32, and
    rounded at the end.
    """
    if not is_inexact(a):
        return NotImplemented
    if a.dtype in (torch.float16, torch.bfloat16):
        return matrix_exp.rule(a.float()).to(a.dtype)
    if is_empty(a):
        return torch.zeros_like(a)
    terms = 14 if a.dtype == torch.float64 else 8
    norm = torch.amax(a.abs().sum(-2), -1)[..., None, None]
    times = torch.ceil(torch.log2(torch.clamp(norm, min=0.5))) + 1
    one = identity(a, *a.shape[-2:])
    scaled = a * torch.exp2(-times)

    total = one
    for k in range(terms, 0, -1):
        total = one + (scaled @ total) / k

    def square(_: Tensor, x: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(left > 0, x @ x, x), left - 1

    return counted_loop(_SQUARINGS, square, total, times)[0]


_SQUARINGS = 24
"""Limit of squarings: norms up to 2**23."""


MATRIX_FUNCTIONS: tuple[Decomposition, ...] = (pinv, pinv_rcond, matrix_rank, matrix_rank_tol, matrix_exp)
