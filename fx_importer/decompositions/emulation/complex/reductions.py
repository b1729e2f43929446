"""Rules of sums, means, products and norms of complex tensors, and of logaddexp and logcumsumexp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.row_loops import counted_loop, indices_along
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


@decomposes(aten.logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    """Return the logarithm of the cumulative sum of exponentials, term by term, as eager."""
    if not x.is_complex():
        return NotImplemented
    if x.dim() == 0 or is_empty(x) or not isinstance(x.shape[dim], int):
        return x.clone() if x.dim() == 0 or is_empty(x) else NotImplemented
    real, imaginary = (part.movedim(dim, -1) for part in parts_of_tensor(x))

    def step(
        i: Tensor, reals: Tensor, imaginaries: Tensor, a: Tensor, b: Tensor, real: Tensor, imaginary: Tensor
    ) -> tuple[Tensor, ...]:
        here = indices_along(real, -1) == i
        c, d = torch.where(here, real, 0.0).sum(-1), torch.where(here, imaginary, 0.0).sum(-1)
        e, f = _logaddexp_parts(a, b, c, d)
        a, b = torch.where(i == 0, c, e), torch.where(i == 0, d, f)
        return torch.where(here, a.unsqueeze(-1), reals), torch.where(here, b.unsqueeze(-1), imaginaries), a, b

    zeros, start = torch.zeros_like(real), torch.zeros_like(real[..., 0])
    sums = counted_loop(x.shape[dim], step, zeros, zeros.clone(), start, start.clone(), invariants=(real, imaginary))
    return torch.complex(*(part.movedim(-1, dim) for part in sums[:2]))


def _logaddexp_parts(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of ``log(exp(a + bi) + exp(c + di))``.

    With ``z = exp(small - large)`` it is ``large + log(1 + z)``, and ``|1 + z|**2`` is ``1 + 2 Re(z) + |z|**2``.
    """
    first = a > c
    large, phase = torch.where(first, a, c), torch.where(first, b, d)
    difference = torch.where(a == c, 0.0, torch.where(first, c - a, a - c))
    magnitude, angle = torch.exp(difference), torch.where(first, d - b, b - d)
    real_part, imaginary_part = magnitude * torch.cos(angle), magnitude * torch.sin(angle)
    return large + 0.5 * torch.log1p(real_part + real_part + magnitude * magnitude), phase + torch.atan2(
        imaginary_part, 1.0 + real_part
    )


@decomposes(aten.logaddexp.default)
def logaddexp(x: Tensor, y: Tensor) -> Any:
    """Return ``log(exp(x) + exp(y))``."""
    if not x.is_complex() or not y.is_complex():
        return NotImplemented
    return torch.complex(*_logaddexp_parts(*parts_of_tensor(y), *parts_of_tensor(x)))


COMPLEX_LOGSUMEXP: tuple[Decomposition, ...] = (logaddexp, logcumsumexp)
