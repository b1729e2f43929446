"""Rules of sums, means and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.integers import is_integer
from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.matmul import matmul
from fx_importer.fx_graph.operators import aten, prims


@decomposes(aten.mean.dim)
def mean(x: Tensor, dim: list[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the sum over ``dim`` (all axes if none is given), divided by the number of elements."""
    count = math.prod(x.shape[axis] for axis in (dim or range(x.dim())) if x.dim())
    if not isinstance(count, int) or x.is_complex():
        return NotImplemented
    return torch.sum(x, dim, keepdim, dtype=dtype) / count


@decomposes(aten.mean.dim)
def mean_of_integers(x: Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the mean of integers or bools in the floating-point or complex dtype that is asked for."""
    if dtype is None or x.is_floating_point() or x.is_complex():
        return NotImplemented
    return aten.mean.dim(x.to(dtype), dim, keepdim)


@decomposes(aten.mean.dim, aten.mean.default)
def mean_of_dynamic_axes(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the sum over ``dim`` divided by the number of elements, where that is dynamic."""
    count = math.prod(x.shape[axis] for axis in (dim or range(x.dim())) if x.dim())
    if isinstance(count, int) or x.is_complex():
        return NotImplemented
    return torch.sum(x, dim or list(range(x.dim())), keepdim, dtype=dtype) / count


@decomposes(aten.sum.dim_IntList)
def sum_integers(
    x: Tensor, dim: list[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the sum of integers in int64, as eager; in int32 if int8 or int16 is asked for."""
    if is_integer(x) and dtype in (torch.int8, torch.int16):
        return aten.sum.dim_IntList(x.int(), dim, keepdim, dtype=torch.int32).to(dtype)
    if not is_integer(x) or x.dtype is torch.int64 or dtype not in (None, torch.int64):
        return NotImplemented
    return aten.sum.dim_IntList(x.long(), dim, keepdim)


@decomposes(aten.sum.default, aten.sum.dim_IntList)
def sum_as_bool(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return whether an element is not zero, where the sum is asked for in bool."""
    if dtype is not torch.bool:
        return NotImplemented
    return aten.sum.dim_IntList((x != 0).int(), dim, keepdim, dtype=torch.int32) != 0


@decomposes(aten.prod.default, aten.prod.dim_int)
def prod_integers(x: Tensor, *where: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return the product of integers in int64, as eager, by halving the axis: TOSA's is of floats.

    In narrower integers or bool, if these are asked for, it wraps as they do.
    """
    if (dtype or x.dtype).is_floating_point or (dtype or x.dtype).is_complex:
        return NotImplemented
    x = x if dtype is None else x.to(dtype)
    dim, keepdim = (*where, False)[:2] if where else (0, False)
    rows = (x if where and x.dim() else x.reshape(-1)).long().movedim(dim, 0)
    if is_empty(rows):
        product = torch.ones(rows.shape[1:], dtype=torch.int64)
    elif isinstance(rows.shape[0], int):
        product = matmul.product_of_rows(rows)
    else:
        product = torch.cumprod(rows, 0).select(0, -1)
    product = product.unsqueeze(dim) if keepdim and x.dim() else product
    return product if dtype in (None, torch.int64) else product.to(dtype)


@decomposes(prims.prod.default)
def prod_over_axes(x: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    """Multiply along one axis after the other."""
    product = x if output_dtype is None else x.to(output_dtype)
    for axis in sorted(range(x.dim()) if dims is None else dims, reverse=True):
        product = torch.prod(product, axis, dtype=product.dtype)
    return product.clone() if product is x else product
