"""Decompositions of ``index``, ``index_put``, ``take`` and ``put``."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.masked import put_by_mask, select_by_mask
from fx_importer.fx_graph.operators import aten

_indices_nonnegative: ContextVar[bool] = ContextVar("counted_from_the_start", default=False)
"""Set while a rule emits its own operator: an ``index_put`` with nonnegative indices."""


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


@decomposes(aten.index_put.default)
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Write at nonnegative indices: the lowerings treat negative ones as out of range."""
    if any(each is not None and is_empty(each) for each in (x, values, *indices)):  # the C++ lowering divides by zero
        return x.clone()
    if any(each is not None and each.dtype == torch.bool for each in indices):
        return put_by_mask(x, indices, values, accumulate)
    if _indices_nonnegative.get():
        return NotImplemented
    return _put_nonnegative(x, *_scalar_indices_to_rank_one(x, nonnegative_indices(x, indices), values), accumulate)


def _scalar_indices_to_rank_one(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> tuple[Sequence[Tensor | None], Tensor]:
    """Return rank-zero indices with rank one, and ``values`` with that axis: the C++ lowerings crash on rank zero."""
    given = [axis for axis, each in enumerate(indices) if each is not None]
    if not given or any(each.dim() for each in indices if each is not None):
        return indices, values
    rest = [size for axis, size in enumerate(x.shape) if axis not in given]
    together = given == list(range(given[0], given[-1] + 1))  # otherwise what is picked comes first
    values = values.expand(rest).unsqueeze(given[0] if together else 0)
    return [None if each is None else each.reshape(1) for each in indices], values


def _put_nonnegative(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    token = _indices_nonnegative.set(True)
    try:
        return aten.index_put(x, indices, values, accumulate)
    finally:
        _indices_nonnegative.reset(token)


@decomposes(aten.index_copy.default)
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write rows along ``dim``: indices are not negative."""
    if is_empty(index):
        return x.clone()
    if not x.dim():
        x, index, source = (each.reshape(1) for each in (x, index, source))
        return index_copy.rule(x, 0, index, source).reshape(())
    index = index.reshape(-1)
    source = source if source.dim() == x.dim() else source.reshape(1)  # of one element, as the only axis of x
    indices = [None] * (dim % x.dim())
    return _put_nonnegative(x, [*indices, index.long()], source, False)


@decomposes(aten.index_put.default)
def index_put_of_leading_axes(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Write whole rows along the leading axes, as TOSA's scatter requires.

    ``x[:, i] = values`` becomes ``x.T[i] = values.T``. Indices of axes that are not adjacent are not moved.
    """
    if _indices_nonnegative.get():
        return NotImplemented
    given = [axis for axis, index in enumerate(indices) if index is not None]
    first = given[0] if given else 0
    if not given or given != list(range(first, first + len(given))):
        return index_put(x, indices, values, accumulate)
    tensors = [index for index in indices if index is not None]
    if any(index.dtype == torch.bool for index in tensors):  # a mask indexes as many axes as its rank
        return put_by_mask(x, indices, values, accumulate)
    picked = torch.broadcast_shapes(*(index.shape for index in tensors))
    before, after = list(range(first)), list(range(first + len(given), x.dim()))
    values = values.expand([*x.shape[:first], *picked, *(x.shape[axis] for axis in after)])
    middle = list(range(first, first + len(picked)))
    rest = list(range(first + len(picked), values.dim()))
    order = [*given, *before, *after]
    # As `nonnegative_indices`; the minimum shows range analysis that the sum fits the dtype of the indices.
    rows = [
        torch.where(index < 0, torch.minimum(index, torch.zeros((), dtype=index.dtype)) + x.shape[axis], index)
        for axis, index in zip(given, tensors, strict=True)
    ]
    written = _put_nonnegative(x.permute(order), rows, values.permute([*middle, *before, *rest]), accumulate)
    return written.permute([order.index(axis) for axis in range(x.dim())])


@decomposes(aten._index_put_impl.default)
def index_put_impl(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """Write as ``index_put``; ``unsafe`` is about checks."""
    del unsafe
    return aten.index_put(x, indices, values, accumulate)


@decomposes(aten.put.default)
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Write, or accumulate, at indices of the flattened tensor."""
    flat = torch.index_put(x.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)
