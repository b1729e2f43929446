"""Decompositions of ``index``, ``take`` and ``combinations``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.masked import select_by_mask
from fx_importer.fx_graph.operators import aten


def nonnegative_indices(x: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return ``indices`` of the first axes of ``x`` with negative ones wrapped."""
    sizes = x.shape[: len(indices)]
    return [
        None if tensor is None else torch.where(tensor < 0, tensor + size, tensor)
        for tensor, size in zip(indices, sizes, strict=True)
    ]


@decomposes(aten.index.Tensor)
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Read at nonnegative int64 indices; no match for masks."""
    if is_kept(aten.index.Tensor) or any(tensor is not None and tensor.dtype == torch.bool for tensor in indices):
        return NotImplemented
    with keep(aten.index.Tensor):
        return aten.index.Tensor(
            x, [None if tensor is None else tensor.long() for tensor in nonnegative_indices(x, indices)]
        )


@decomposes(aten.index.Tensor)
def index_int64(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Read at int64 indices."""
    kinds = {tensor.dtype for tensor in indices if tensor is not None}
    if is_kept(aten.index.Tensor) or not kinds & {torch.int8, torch.int16, torch.int32}:
        return NotImplemented
    widened = [None if tensor is None or tensor.dtype == torch.bool else tensor.long() for tensor in indices]
    return aten.index.Tensor(x, widened) if torch.bool not in kinds else NotImplemented


@decomposes(aten.index.Tensor)
def index_of_dynamic_shape(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Merge indices that share a dynamic axis into one index of the flattened axes of ``x``."""
    indexed_axes = [axis for axis, tensor in enumerate(indices) if tensor is not None]
    tensors = [tensor for tensor in indices if tensor is not None]
    if any(tensor.dtype == torch.bool for tensor in tensors) or not _share_dynamic_axis(tensors):
        return NotImplemented
    first = indexed_axes[0] if indexed_axes == list(range(indexed_axes[0], indexed_axes[-1] + 1)) else 0
    others = [axis for axis in range(x.dim()) if axis not in indexed_axes]
    flat = x.permute(*others[:first], *indexed_axes, *others[first:]).flatten(first, first + len(indexed_axes) - 1)
    row: Any = 0
    for axis, tensor in zip(indexed_axes, tensors, strict=True):
        row = row * x.shape[axis] + torch.where(tensor < 0, tensor + x.shape[axis], tensor).long()
    return aten.index(flat, [*[None] * first, row])


def _share_dynamic_axis(tensors: Sequence[Tensor]) -> bool:
    open_axes = [
        axis - tensor.dim() for tensor in tensors for axis, size in enumerate(tensor.shape) if type(size) is not int
    ]
    return len(set(open_axes)) < len(open_axes)


@decomposes(aten.index.Tensor)
def index_by_rows(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Read rows of a table, as TOSA does, at places that are constants if the indices of adjacent axes are.

    The C++ lowering computes the place of each element. Channels before the indexed axes come last in the table, as in
    TOSA's convolutions, so that a row is more than one element.
    """
    axes = [axis for axis, tensor in enumerate(indices) if tensor is not None]
    tensors = [tensor for tensor in indices if tensor is not None]
    if not axes or axes != list(range(axes[0], axes[-1] + 1)) or not is_static(x, *tensors):
        return NotImplemented
    if any(tensor.dtype is torch.bool for tensor in tensors) or not x.numel() or not all(map(Tensor.numel, tensors)):
        return NotImplemented
    row: Any = 0
    for axis, tensor in zip(axes, tensors, strict=True):
        tensor = tensor.int()  # TOSA's gather has int32 indices
        row = row * x.shape[axis] + torch.where(tensor < 0, tensor + x.shape[axis], tensor)
    return _rows(x, axes[0], axes[-1] + 1, row)


@decomposes(aten.index_select.default)
def index_select_by_rows(x: Tensor, dim: int, index: Tensor) -> Any:
    """Read rows of a table, as `index_by_rows`."""
    if not x.dim() or not index.dim() or not is_static(x, index) or not x.numel() or not index.numel():
        return NotImplemented
    return _rows(x, dim % x.dim(), dim % x.dim() + 1, index.int())


def _rows(x: Tensor, first: int, last: int, row: Tensor) -> Tensor:
    """Return the elements of ``x`` at each ``row`` in its axes ``first`` to ``last``, flattened."""
    before, sizes, after = x.shape[:first], x.shape[first:last], x.shape[last:]
    if first > 1 and not after:
        result = _rows(x.movedim(1, -1), first - 1, last - 1, row)
        return result.movedim(-1, 1)
    size, count, shape = math.prod(sizes), math.prod(before), (*before, *row.shape, *after)
    if count > 1:
        row = (torch.arange(count, dtype=row.dtype, device=row.device) * size).unsqueeze(1) + row.reshape(1, -1)
    return aten.embedding(x.reshape(count * size, math.prod(after)), row.reshape(-1)).reshape(shape)


@decomposes(aten.index.Tensor)
def index_of_adjacent_axes(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Select along one axis, the merged axes of ``x`` that are indexed, if a size is dynamic."""
    tensors = [tensor for tensor in indices if tensor is not None]
    return NotImplemented if is_static(x, *tensors) else _select_merged(x, indices)


@decomposes(aten.index.Tensor)
def index_of_inner_axes(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Select along one axis, the merged axes of ``x`` that are indexed, if they are adjacent and not the first ones.

    The C++ lowerings read each element of the axes before at an index too.
    """
    axes = [axis for axis, tensor in enumerate(indices) if tensor is not None]
    return _select_merged(x, indices) if axes and 0 < axes[0] == axes[-1] + 1 - len(axes) else NotImplemented


def _select_merged(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    indexed_axes = [axis for axis, tensor in enumerate(indices) if tensor is not None]
    tensors = [tensor for tensor in indices if tensor is not None]
    if not indexed_axes or any(tensor.dtype == torch.bool for tensor in tensors):
        return NotImplemented
    if indexed_axes != list(range(indexed_axes[0], indexed_axes[-1] + 1)):  # then what is selected comes first
        x = x.permute(*indexed_axes, *(axis for axis in range(x.dim()) if axis not in indexed_axes))
        indexed_axes = list(range(len(indexed_axes)))
    first, last = indexed_axes[0], indexed_axes[-1]
    row: Any = 0
    for axis, tensor in zip(indexed_axes, tensors, strict=True):
        row = row * x.shape[axis] + torch.where(tensor < 0, tensor + x.shape[axis], tensor).long()
    result = x.flatten(first, last).index_select(first, row.reshape(-1))
    return result.reshape([*x.shape[:first], *row.shape, *x.shape[last + 1 :]])


@decomposes(aten.index.Tensor)
def index_by_mask(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Flatten a mask of several axes to one, as the selected elements are along one axis anyway."""
    indexed_axes = [(axis, tensor) for axis, tensor in enumerate(indices) if tensor is not None]
    if len(indexed_axes) != 1 or indexed_axes[0][1].dtype != torch.bool or indexed_axes[0][1].dim() == 0:
        return NotImplemented
    axis, mask = indexed_axes[0]
    return select_by_mask(x.flatten(axis, axis + mask.dim() - 1), axis, mask.reshape(-1))


@decomposes(aten.take.default)
def take(x: Tensor, index: Tensor) -> Tensor:
    """Read at indices of the flattened tensor."""
    size = x.numel()
    places = torch.where(index < 0, index + size, index)
    return x.reshape(-1).index_select(0, places.reshape(-1)).reshape(index.shape)


@decomposes(aten.combinations.default)
def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """Return combinations of one element; for more, torch.export cannot express the output size."""
    return x.unsqueeze(1) if r == 1 else NotImplemented
