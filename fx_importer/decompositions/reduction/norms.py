"""Rules of vector norms, and of distances, which are norms of differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.linalg_dense.row_loops import is_inexact
from fx_importer.fx_graph.operators import aten


def p_norm(x: Tensor, p: float, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """Return the p-norm of floats over ``dims``: for 0 the count of nonzeros, for infinity the largest magnitude."""
    dims = list(dims)
    if p == 0:
        return torch.sum((x != 0).to(x.dtype), dims, keepdim)
    if p == math.inf:
        return torch.amax(x.abs(), dims, keepdim)
    if p == -math.inf:
        return torch.amin(x.abs(), dims, keepdim)
    if p == 1:
        return torch.sum(x.abs(), dims, keepdim)
    if p == 2:
        return torch.sqrt(torch.sum(x * x, dims, keepdim))
    return torch.pow(torch.sum(torch.pow(x.abs(), p), dims, keepdim), 1 / p)


@decomposes(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Return the p-norm over ``dim``, or over all axes; half precision is accumulated in float32."""
    kind = dtype or x.dtype
    if x.is_complex() or not kind.is_floating_point or not isinstance(ord, int | float) or not x.dim():
        return NotImplemented
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    return p_norm(x.to(wide), ord, range(x.dim()) if dim is None else dim or range(x.dim()), keepdim).to(kind)


Axes = Sequence[int] | None


@decomposes(aten.linalg__powsum.default)
def powsum(
    x: Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """Return ``sum(|x|**ord)``: the norm without its root."""
    x = (x if dtype is None else x.to(dtype)).abs()
    powers = (x != 0).to(x.dtype) if ord == 0 else x if ord == 1 else x * x if ord == 2 else x**ord
    return torch.sum(powers, list(dim) if dim else None, keepdim)


@decomposes(aten.linalg_vector_norm.default)
def float_vector_norm(
    x: Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """Return ``sum(|x|**ord) ** (1 / ord)`` over ``dim``, by default all axes; for infinity the maximum.

    Norms of order 0, 1, 2 and infinity take no power, which TOSA has of positive numbers only. Rank zero is supported.
    """
    if x.is_complex() or not x.is_floating_point():
        return NotImplemented
    x = (x if dtype is None else x.to(dtype)).abs()
    axes = list(dim) if dim else list(range(x.dim()))
    if math.isinf(ord):
        return torch.amax(x, axes, keepdim) if ord > 0 else torch.amin(x, axes, keepdim)
    if ord == 0:
        return torch.sum((x != 0).to(x.dtype), axes, keepdim)
    if ord == 2:
        return torch.sqrt(torch.sum(x * x, axes, keepdim))
    total = torch.sum(x if ord == 1 else x**ord, axes, keepdim)
    return total if ord == 1 else total ** (1.0 / ord)


@decomposes(aten.norm.ScalarOpt_dim)
def float_norm_dim(x: Tensor, p: float | None, dim: Axes, keepdim: bool = False) -> Any:
    """Return `float_vector_norm`, by the older operator."""
    return float_vector_norm(x, 2.0 if p is None else p, dim, keepdim)


@decomposes(aten.norm.Scalar)
def float_norm(x: Tensor, p: float = 2) -> Any:
    """Return `float_vector_norm` of all elements."""
    return float_vector_norm(x, p)


@decomposes(aten.norm.ScalarOpt_dtype)
def norm_in_dtype(x: Tensor, p: float | None, *, dtype: torch.dtype) -> Tensor:
    """Return the norm of all elements, computed in ``dtype``."""
    return torch.linalg.vector_norm(x, 2.0 if p is None else p, dtype=dtype)


@decomposes(aten.norm.ScalarOpt_dim_dtype)
def norm_dim_in_dtype(
    x: Tensor, p: float | None, dim: Sequence[int], keepdim: bool = False, *, dtype: torch.dtype
) -> Tensor:
    """Return the norm over ``dim``, or over all axes if that is empty, computed in ``dtype``."""
    return torch.linalg.vector_norm(x, 2.0 if p is None else p, list(dim) or None, keepdim, dtype=dtype)


NORMS_IN_DTYPE = (norm_in_dtype, norm_dim_in_dtype)

FLOAT_NORMS = (float_vector_norm, float_norm_dim, float_norm)


@decomposes(aten.linalg_norm.default, aten.linalg_norm.ord_str)
def linalg_norm(
    x: Tensor,
    ord: float | str | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Return the matrix norm over two axes, or the vector norm, as torch documents ``linalg.norm``."""
    if not is_inexact(x):
        return NotImplemented
    along = list(range(x.dim())) if dim is None else list(dim)
    if ord is not None and len(along) == 2:
        return torch.linalg.matrix_norm(x, ord, (along[0], along[1]), keepdim, dtype=dtype)
    if isinstance(ord, str):
        return NotImplemented
    return torch.linalg.vector_norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@decomposes(aten.dist.default)
def dist(a: Tensor, b: Tensor, p: float = 2) -> Tensor:
    """Return the p-norm of the difference."""
    return torch.linalg.vector_norm(a - b, p)


@decomposes(aten._cdist_forward.default)
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Return the p-norm of the difference of each row of ``a`` and each of ``b``.

    Never by a matrix product, which is smaller and less exact.
    """
    del compute_mode
    return p_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, [-1])


@decomposes(aten._pdist_forward.default)
def pdist(x: Tensor, p: float = 2) -> Any:
    """Return the p-norm of the difference of each row and each later one."""
    if not isinstance(x.shape[0], int):
        return NotImplemented
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1).unbind()
    return p_norm(x[first] - x[second], p, [-1])


DISTANCES = (dist, cdist, pdist)
