"""Decompositions of ``index`` and ``take``."""

from __future__ import annotations

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
        None if each is None else torch.where(each < 0, each + size, each)
        for each, size in zip(indices, sizes, strict=True)
    ]


@decomposes(aten.index.Tensor)
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Read at nonnegative int64 indices; no match for masks."""
    if is_kept(aten.index.Tensor) or any(each is not None and each.dtype == torch.bool for each in indices):
        return NotImplemented
    with keep(aten.index.Tensor):
        return aten.index.Tensor(x, [None if each is None else each.long() for each in nonnegative_indices(x, indices)])


@decomposes(aten.index.Tensor)
def index_int64(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Read at int64 indices."""
    kinds = {each.dtype for each in indices if each is not None}
    if is_kept(aten.index.Tensor) or not kinds & {torch.int8, torch.int16, torch.int32}:
        return NotImplemented
    widened = [None if each is None or each.dtype == torch.bool else each.long() for each in indices]
    return aten.index.Tensor(x, widened) if torch.bool not in kinds else NotImplemented


@decomposes(aten.index.Tensor)
def index_of_dynamic_shape(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Merge indices that share a dynamic axis into one index of the flattened axes of ``x``."""
    given = [axis for axis, each in enumerate(indices) if each is not None]
    tensors = [each for each in indices if each is not None]
    if any(each.dtype == torch.bool for each in tensors) or not _share_dynamic_axis(tensors):
        return NotImplemented
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    others = [axis for axis in range(x.dim()) if axis not in given]
    flat = x.permute(*others[:first], *given, *others[first:]).flatten(first, first + len(given) - 1)
    place: Any = 0
    for axis, each in zip(given, tensors, strict=True):
        place = place * x.shape[axis] + torch.where(each < 0, each + x.shape[axis], each).long()
    return aten.index(flat, [*[None] * first, place])


def _share_dynamic_axis(tensors: Sequence[Tensor]) -> bool:
    open_axes = [axis - each.dim() for each in tensors for axis, size in enumerate(each.shape) if type(size) is not int]
    return len(set(open_axes)) < len(open_axes)


_MAX_INDEXED_RANK = 4
"""Largest rank of a result of indexing that the C++ lowering keeps within TOSA's maximum rank of six."""


@decomposes(aten.index.Tensor)
def index_by_flat_indices(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Flatten indices of many axes: the C++ lowering stacks them along one more axis, and TOSA allows six."""
    given = [axis for axis, each in enumerate(indices) if each is not None]
    tensors = [each for each in indices if each is not None]
    if not given or given != list(range(given[0], given[-1] + 1)) or any(t.dtype is torch.bool for t in tensors):
        return NotImplemented
    shape = torch.broadcast_shapes(*(each.shape for each in tensors))
    result = (*x.shape[: given[0]], *shape, *x.shape[given[-1] + 1 :])
    if len(shape) < 2 or len(result) <= _MAX_INDEXED_RANK or not all(isinstance(size, int) for size in result):
        return NotImplemented
    flat = [each.expand(shape).reshape(-1) for each in tensors]
    return aten.index(x, [*indices[: given[0]], *flat]).reshape(result)


@decomposes(aten.index.Tensor)
def index_of_adjacent_axes(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Select along one axis, the merged axes of ``x`` that are indexed, if a size is dynamic."""
    given = [axis for axis, each in enumerate(indices) if each is not None]
    tensors = [each for each in indices if each is not None]
    if is_static(x, *tensors) or not given or any(each.dtype == torch.bool for each in tensors):
        return NotImplemented
    if given != list(range(given[0], given[-1] + 1)):  # then what is selected comes first
        x = x.permute(*given, *(axis for axis in range(x.dim()) if axis not in given))
        given = list(range(len(given)))
    first, last = given[0], given[-1]
    place: Any = 0
    for axis, each in zip(given, tensors, strict=True):
        place = place * x.shape[axis] + torch.where(each < 0, each + x.shape[axis], each).long()
    found = x.flatten(first, last).index_select(first, place.reshape(-1))
    return found.reshape([*x.shape[:first], *place.shape, *x.shape[last + 1 :]])


@decomposes(aten.index.Tensor)
def index_by_mask(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Flatten a mask of several axes to one, as the selected elements are along one axis anyway."""
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if len(given) != 1 or given[0][1].dtype != torch.bool or given[0][1].dim() == 0:
        return NotImplemented
    axis, mask = given[0]
    return select_by_mask(x.flatten(axis, axis + mask.dim() - 1), axis, mask.reshape(-1))


@decomposes(aten.take.default)
def take(x: Tensor, index: Tensor) -> Tensor:
    """Read at indices of the flattened tensor."""
    size = x.numel()
    places = torch.where(index < 0, index + size, index)
    return x.reshape(-1).index_select(0, places.reshape(-1)).reshape(index.shape)
