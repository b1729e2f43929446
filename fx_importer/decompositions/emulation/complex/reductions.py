"""Rules of sums, means, products and norms of complex tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.matmul import matmul
from fx_importer.decompositions.reduction import cumulative
from fx_importer.fx_graph.operators import aten


@decomposes(aten.sum.dim_IntList)
def sum_dim(x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the sums of both parts."""
    if not x.is_complex() or (dtype is not None and dtype != x.dtype):
        return NotImplemented
    axes = [axis % max(x.dim(), 1) for axis in dim or range(x.dim())]
    return torch.complex(*(torch.sum(part, axes, keepdim) for part in parts_of_tensor(x)))


@decomposes(aten.sum.default)
def sum_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    """Return `sum_dim` over all axes."""
    return sum_dim(x, None, dtype=dtype)


@decomposes(aten.mean.dim)
def mean_dim(x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the means of both parts."""
    if not x.is_complex() or (dtype is not None and dtype != x.dtype):
        return NotImplemented
    axes = [axis % max(x.dim(), 1) for axis in dim or range(x.dim())]
    return torch.complex(*(torch.mean(part, axes, keepdim) for part in parts_of_tensor(x)))


@decomposes(aten.mean.default)
def mean_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    """Return `mean_dim` over all axes."""
    return mean_dim(x, None, dtype=dtype)


@decomposes(aten.prod.dim_int)
def prod_dim(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the product along an axis, by halving it; along a dynamic one, the last cumulative product."""
    kind = dtype or x.dtype
    if not kind.is_complex:
        return NotImplemented
    rank = x.dim()
    x = x.to(kind).movedim(dim, 0) if rank else x.to(kind).unsqueeze(0)
    if not isinstance(x.shape[0], int):
        product = torch.cumprod(x, 0).select(0, -1)
    elif not len(x):
        product = torch.full(x.shape[1:], 1.0, dtype=kind)
    else:
        product = matmul.product_of_rows(x)
    return product.unsqueeze(dim) if keepdim and rank else product


@decomposes(aten.prod.default)
def prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    """Return the product of all elements."""
    return prod_dim(x.reshape(-1), 0, dtype=dtype) if (dtype or x.dtype).is_complex else NotImplemented


@decomposes(aten.cumprod.default)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Return the cumulative product."""
    return cumulative.cumprod_by_scan(x, dim, dtype=dtype) if (dtype or x.dtype).is_complex else NotImplemented


@decomposes(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Return the norm of the absolute values."""
    if not x.is_complex():
        return NotImplemented
    return aten.linalg_vector_norm(x.abs(), ord, dim, keepdim, dtype=dtype and dtype.to_real())


@decomposes(aten.norm.ScalarOpt_dim)
def norm_dim(x: Tensor, p: float | None, dim: Sequence[int], keepdim: bool = False) -> Any:
    """Return `vector_norm`, by the older operator."""
    return vector_norm(x, 2.0 if p is None else p, dim, keepdim)


@decomposes(aten.norm.Scalar)
def norm(x: Tensor, p: float = 2) -> Any:
    """Return `vector_norm` of all elements."""
    return vector_norm(x, p)


@decomposes(aten.linalg_norm.default, aten.linalg_norm.ord_str)
def linalg_norm(
    x: Tensor, ord: float | str | None = None, dim: Sequence[int] | None = None, *args: Any, **kw: Any
) -> Any:
    """Return the norm of the absolute values; matrix norms of singular values stay."""
    of_matrices = x.dim() == 2 if dim is None else len(dim) == 2
    if not x.is_complex() or (of_matrices and ord in (2, -2, "nuc")):
        return NotImplemented
    if (dtype := kw.get("dtype")) is not None:
        kw["dtype"] = dtype.to_real()
    return torch.linalg.norm(x.abs(), ord, dim, *args, **kw)


PRODUCTS = (prod_dim, prod, cumprod)


NORMS = (vector_norm, norm_dim, norm, linalg_norm)
