"""Decompositions of ``masked_select`` and ``masked_scatter``, and selection and writes by one boolean mask."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


def select_by_mask(x: Tensor, axis: int, mask: Tensor) -> Tensor:
    """Return the slices of ``x`` along ``axis`` at which a mask of rank 1 is true."""
    return x.index_select(axis, aten.nonzero(mask).squeeze(1))


@decomposes(aten.masked_select.default)
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """Return the elements at which a mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    return select_by_mask(x.reshape(-1), 0, mask.reshape(-1))


def true_ranks(mask: Tensor) -> Tensor:
    """Return the number of true elements before each element of the flattened ``mask``, in int64."""
    flat = mask.reshape(-1).to(torch.int64)
    return torch.cumsum(flat, 0) - flat


def rows_by_rank(values: Tensor, axis: int, rank: Tensor, used: Tensor) -> Tensor:
    """Return the slice of ``values`` along ``axis`` at each ``rank`` [n] where ``used`` [n] is true, and any elsewhere.

    Where nothing is used, nothing is read of ``values``, which may be empty. A used rank beyond their size is out of
    range.
    """
    zero = torch.zeros((), dtype=torch.int64)
    if isinstance(values.shape[axis], int):
        return values.index_select(axis, torch.where(used, rank, zero))
    unused = torch.zeros([*values.shape[:axis], 1, *values.shape[axis + 1 :]], dtype=values.dtype)
    return torch.cat([unused, values], axis).index_select(axis, torch.where(used, rank + 1, zero))


def rank_of_slices(rank: Tensor, number: int) -> Tensor:
    """Return ``rank`` among ``number`` slices that are read one after the other; a single slice is read every time."""
    if isinstance(number, int):
        return rank
    return torch.where(torch.full((), number, dtype=torch.int64) == 1, torch.zeros((), dtype=torch.int64), rank)


@decomposes(aten.masked_scatter.default)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Return ``x`` with consecutive elements of ``source`` where a mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    if is_empty(source) or is_empty(x):
        return x.clone()
    selected = rows_by_rank(source.reshape(-1), 0, true_ranks(mask), mask.reshape(-1))
    return torch.where(mask, selected.reshape(x.shape), x)


def put_by_mask(x: Tensor, axis: int, mask: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """Write where a mask of the axes of ``x`` from ``axis`` on is true: consecutive slices of ``values``, or one.

    Args:
        x: [*before, *mask.shape, *after].
        axis: the number of axes before.
        mask: bool, of rank 1 or more.
        values: broadcastable to [*before, n, *after], where n is the number of true elements, or 1.
        accumulate: whether the values are added.
    """
    after = x.dim() - axis - mask.dim()
    values = values.reshape([1] * (axis + 1 + after - values.dim()) + list(values.shape))
    number = values.shape[axis]
    if not (isinstance(number, int) and number == 1):
        values = rows_by_rank(values, axis, rank_of_slices(true_ranks(mask), number), mask.reshape(-1))
        masked_sizes = list(mask.shape)
    else:
        masked_sizes = [1] * mask.dim()
    values = values.reshape([*values.shape[:axis], *masked_sizes, *values.shape[axis + 1 :]])
    return torch.where(mask.reshape([*mask.shape, *[1] * after]), x + values if accumulate else values, x)
