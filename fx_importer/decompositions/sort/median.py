"""Rules of median, nanmedian and mode."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits, positions
from fx_importer.fx_graph.operators import aten


@decomposes(aten.median.default)
def median(x: Tensor) -> Any:
    """Return the lower of the middle elements; NaN if any is NaN."""
    if is_empty(x):
        return NotImplemented
    flat = x if x.dim() == 1 else x.reshape(-1)
    if x.is_floating_point() and not isinstance(flat.shape[0], int):
        return torch.where(torch.any(flat != flat), math.nan, nanmedian.rule(flat)).to(x.dtype)
    ordered = torch.sort(flat, 0)[0]
    if not isinstance(flat.shape[0], int):
        none = torch.full((1,), _MEDIAN_OF_NONE.get(x.dtype, 0), dtype=x.dtype)
        rank = torch.scalar_tensor(torch.sym_max(flat.shape[0] - 1, 0) // 2, dtype=torch.int64)
        return torch.cat([ordered, none]).index_select(0, rank.reshape(1)).reshape(())
    middle, last = ordered.narrow(0, (x.numel() - 1) // 2, 1).squeeze(0), ordered[-1]
    return torch.where(last != last, last, middle) if x.is_floating_point() else middle


_MEDIAN_OF_NONE = {dtype: torch.iinfo(dtype).min for dtype in (torch.int32, torch.int64)}
"""NaN as an integer of eager PyTorch; 0 for narrower ones."""


@decomposes(aten.median.dim)
def median_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """Return the median along an axis and its index: of NaNs, the first."""
    return _median_dim(x, dim, keepdim, ignoring_nan=False)


@decomposes(aten.nanmedian.default)
def nanmedian(x: Tensor) -> Any:
    """Return the lower of the middle elements, ignoring NaN."""
    if not x.is_floating_point():
        return median.rule(x)
    flat = x.reshape(-1)
    if not isinstance(flat.shape[0], int):
        flat = torch.cat([flat, torch.full((1,), math.nan, dtype=x.dtype)])  # the median of no elements
    result = _median_dim(flat, 0, False, ignoring_nan=True)
    return result if result is NotImplemented else result[0]


@decomposes(aten.nanmedian.dim)
def nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """Return the median along an axis, ignoring NaN, and its index."""
    return _median_dim(x, dim, keepdim, ignoring_nan=True)


def _median_dim(x: Tensor, dim: int, keepdim: bool, ignoring_nan: bool) -> Any:
    if is_empty(x):
        return NotImplemented
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    values, indices = torch.sort(x, dim)
    if x.is_floating_point():
        nans = count(x != x, dim, keepdim=True)
        if ignoring_nan:
            rank = torch.clamp(size - 1 - nans, min=0) >> 1
        else:
            middle = torch.scalar_tensor((size - 1) // 2, dtype=nans.dtype)
            rank = torch.where(nans > 0, size - nans, middle)
        rank = rank.to(torch.int64)
        value, index = values.gather(dim, rank), indices.gather(dim, rank)
    elif isinstance(size, int):
        value, index = (tensor.narrow(dim, (size - 1) // 2, 1) for tensor in (values, indices))
    else:
        rank = torch.scalar_tensor((size - 1) // 2, dtype=torch.int64).reshape(1)
        value, index = values.index_select(dim, rank), indices.index_select(dim, rank)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@decomposes(aten.mode.default)
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the most frequent element along ``dim``, the smallest of several, and its last index."""
    if is_empty(x):
        return NotImplemented
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    if not fits(x.numel(), size):
        return NotImplemented
    rows = x.movedim(dim, -1)
    numbers = rows.to(torch.int32) if x.dtype == torch.bool else rows
    often = count(numbers.unsqueeze(-1) == numbers.unsqueeze(-2))
    most = torch.amax(often, -1, keepdim=True)
    ordered, order = torch.sort(numbers, -1)
    # The first in order is the smallest; the index returned is the last of its equals.
    at = positions(size)
    first = torch.amin(torch.where(often.gather(-1, order) == most, at, size - 1), -1, keepdim=True)
    value = ordered.gather(-1, first.to(torch.int64))
    index = torch.amax(torch.where(numbers == value, at, 0), -1, keepdim=True).to(torch.int64)
    value, index = value.to(x.dtype).movedim(-1, dim), index.movedim(-1, dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


MEDIANS = (median, median_dim, nanmedian, nanmedian_dim, mode)
