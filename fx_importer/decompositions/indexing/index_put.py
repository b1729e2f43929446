"""Decompositions of ``index_put``, ``index_copy``, ``index_fill``, ``select_scatter`` and ``put``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import SymInt, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.kept_operators import keep
from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.indexing import nonnegative_indices
from fx_importer.decompositions.indexing.last_writes import Indices, Places, add_rows, write_rows
from fx_importer.decompositions.indexing.mask_indices import has_masks, put_by_masks
from fx_importer.fx_graph.operators import aten

_indices_nonnegative: ContextVar[bool] = ContextVar("counted_from_the_start", default=False)
"""Set while a rule emits its own operator: an ``index_put`` with nonnegative indices."""


@decomposes(aten.index_put.default)
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Write at nonnegative indices: the lowerings treat negative ones as out of range."""
    # The C++ lowering divides by zero.
    if any(tensor is not None and is_empty(tensor) for tensor in (x, values, *indices)):
        return x.clone()
    if has_masks(indices):
        return put_by_masks(x, indices, values, accumulate)
    if _indices_nonnegative.get():
        return NotImplemented
    indexed_axes = [axis for axis, index in enumerate(indices) if index is not None]
    if indexed_axes and len(indexed_axes) <= indexed_axes[-1] - indexed_axes[0]:
        return _put_at_axes_apart(x, indexed_axes, indices, values, accumulate)
    return put_nonnegative(x, *_scalar_indices_to_rank_one(x, nonnegative_indices(x, indices), values), accumulate)


def _put_at_axes_apart(
    x: Tensor, indexed_axes: Sequence[int], indices: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor:
    """Write at indices of axes that are not adjacent (``x[i, :, j] = values``), with these axes first.

    The lowerings take adjacent ones only. The axes of ``values`` are the same: picked axes come first.
    """
    order = [*indexed_axes, *(axis for axis in range(x.dim()) if axis not in indexed_axes)]
    tensors = [indices[axis] for axis in indexed_axes]
    written = aten.index_put(x.permute(order), tensors, values, accumulate)
    return written.permute([order.index(axis) for axis in range(x.dim())])


def _scalar_indices_to_rank_one(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> tuple[Sequence[Tensor | None], Tensor]:
    """Return rank-zero indices with rank one, and ``values`` with that axis: the C++ lowerings crash on rank zero."""
    indexed_axes = [axis for axis, index in enumerate(indices) if index is not None]
    if not indexed_axes or any(index.dim() for index in indices if index is not None):
        return indices, values
    rest = [size for axis, size in enumerate(x.shape) if axis not in indexed_axes]
    together = indexed_axes == list(
        range(indexed_axes[0], indexed_axes[-1] + 1)
    )  # otherwise what is picked comes first
    values = values.expand(rest).unsqueeze(indexed_axes[0] if together else 0)
    return [None if index is None else index.reshape(1) for index in indices], values


def put_nonnegative(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """Write, or accumulate, at indices that are not wrapped."""
    indices, values = _with_a_first_row(x, *_of_all_rows(x, indices, values), accumulate)
    token = _indices_nonnegative.set(True)
    try:
        with keep(aten.index_put.default):
            return aten.index_put(x, indices, values, accumulate)
    finally:
        _indices_nonnegative.reset(token)


def _of_all_rows(x: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> tuple[Sequence[Tensor | None], Tensor]:
    """Return indices and ``values`` with the whole shape that is written, where it is dynamic.

    Where the C++ lowering expands them, it writes at least one row: of none, it reads an index beyond the end.
    """
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    rows = [index for index in indices if index is not None]
    if not axes:
        return indices, values
    before, picked = x.shape[: axes[0]], torch.broadcast_shapes(*(index.shape for index in rows))
    if all(isinstance(size, int) for size in (*before, *picked)):
        return indices, values
    shape = [*before, *picked]
    values = values.expand([*shape, *x.shape[axes[-1] + 1 :]])
    if all(isinstance(size, int) for size in before):
        return [None if index is None else index.expand(picked) for index in indices], values
    counted = [
        torch.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        for axis, size in enumerate(before)
    ]
    return [index.expand(shape) for index in (*counted, *rows)], values


def _with_a_first_row(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> tuple[Sequence[Tensor | None], Tensor]:
    """Prepend a write that changes nothing where the number of rows depends on values, and may be zero.

    The C++ lowering computes at least one row: of none, it would read beyond the end. Row 0 is written first, with its
    own value, or -0.0 is added to it.
    """
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    rows = [index for index in indices if index is not None]
    if not axes or axes != list(range(axes[0], len(indices))) or any(index.dim() != 1 for index in rows):
        return indices, values
    number = rows[0].shape[0]
    if not free_unbacked_symbols(number) or not all(statically_known_true(i.shape[0] == number) for i in rows):
        return indices, values
    if any(isinstance(x.shape[axis], int) and x.shape[axis] == 0 for axis in axes):
        return indices, values
    before, after = x.shape[: axes[0]], x.shape[axes[-1] + 1 :]
    values = values.expand([*before, number, *after])
    first = x
    for axis in axes:
        first = first.narrow(axis, 0, 1)
    first = first.reshape([*before, 1, *after])
    if accumulate:
        first = torch.full(first.shape, -0.0 if x.is_floating_point() else 0, dtype=x.dtype)
    with_first = [torch.cat([torch.zeros(1, dtype=index.dtype), index]) for index in rows]
    return [*indices[: axes[0]], *with_first], torch.cat([first, values], axes[0])


@decomposes(aten.index_copy.default)
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write rows along ``dim``: indices are not negative."""
    if is_empty(index):
        return x.clone()
    if not x.dim():
        x, index, source = (tensor.reshape(1) for tensor in (x, index, source))
        return index_copy.rule(x, 0, index, source).reshape(())
    index = index.reshape(-1)
    source = source if source.dim() == x.dim() else source.reshape(1)  # of one element, as the only axis of x
    indices = [None] * (dim % x.dim())
    return put_nonnegative(x, [*indices, index.long()], source, False)


@decomposes(aten.max_unpool2d.default, aten.max_unpool3d.default)
def max_unpool(x: Tensor, indices: Tensor, output_size: Sequence[int | SymInt], *_: Any) -> Any:
    """Write each image by itself: torch's decomposition adds its offset, so that an index reaches the next image."""
    images = x.shape[: x.dim() - len(output_size)]
    zeros = x.new_zeros([*images, *output_size])
    if is_empty(x) or is_empty(zeros):
        return zeros
    number = math.prod(images)
    image = torch.arange(number).unsqueeze(1)
    places = [image, indices.reshape(number, -1)]
    return put_nonnegative(zeros.reshape(number, -1), places, x.reshape(number, -1), False).reshape(zeros.shape)


@decomposes(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Fill slices along ``dim``: unlike in ``index_copy``, indices may be negative."""
    if not x.dim():
        return index_fill.rule(x.reshape(1), 0, index, value).reshape(())
    value = value.to(x.dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype)
    return aten.index_put(x, [*[None] * (dim % x.dim()), index.reshape(-1).long()], value)


@decomposes(aten.select_scatter.default)
def select_scatter_at_number(x: Tensor, source: Tensor, dim: int, index: int | SymInt) -> Any:
    """Write the slice at an index that depends on values, by a mask of positions."""
    if not isinstance(index, SymInt) or not free_unbacked_symbols(index):
        return NotImplemented
    dim = dim % x.dim()
    size = x.shape[dim]
    place: Any = torch.arange(size)
    hit = torch.logical_or(place == index, place == index + size)
    return torch.where(hit.reshape([-1 if axis == dim else 1 for axis in range(x.dim())]), source.unsqueeze(dim), x)


@decomposes(aten.index_put.default)
def index_put_of_leading_axes(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Write whole rows along the leading axes, as TOSA's scatter requires.

    ``x[:, i] = values`` becomes ``x.T[i] = values.T``. Indices of axes that are not adjacent are not moved.
    """
    if _indices_nonnegative.get() or has_masks(indices):
        return NotImplemented
    indexed_axes = [axis for axis, index in enumerate(indices) if index is not None]
    first = indexed_axes[0] if indexed_axes else 0
    if not indexed_axes or indexed_axes != list(range(first, first + len(indexed_axes))):
        return index_put(x, indices, values, accumulate)
    tensors = [index for index in indices if index is not None]
    picked = torch.broadcast_shapes(*(index.shape for index in tensors))
    before, after = list(range(first)), list(range(first + len(indexed_axes), x.dim()))
    values = values.expand([*x.shape[:first], *picked, *(x.shape[axis] for axis in after)])
    middle = list(range(first, first + len(picked)))
    rest = list(range(first + len(picked), values.dim()))
    order = [*indexed_axes, *before, *after]
    # As `nonnegative_indices`; the minimum shows range analysis that the sum fits the dtype of the indices.
    rows = [
        torch.where(index < 0, torch.minimum(index, torch.zeros((), dtype=index.dtype)) + x.shape[axis], index)
        for axis, index in zip(indexed_axes, tensors, strict=True)
    ]
    written = put_nonnegative(x.permute(order), rows, values.permute([*middle, *before, *rest]), accumulate)
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


@decomposes(aten.index_put.default)
def index_put_of_last_writes(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Any:
    """Write or add rows: of masks, too, and of indices of any axes."""
    tensors = [index for index in indices if index is not None]
    if not tensors:
        return NotImplemented
    if any(is_empty(tensor) for tensor in (x, values, *tensors)):
        return x.clone()
    if has_masks(indices):
        return put_by_masks(x, indices, values, accumulate)
    places = Places.of(x, indices)
    target, rows = places.flat(x), places.rows_of(x, values)
    if x.dtype in HALF_DTYPES and accumulate:
        target, rows = target.float(), rows.float()
    written = (add_rows if accumulate else write_rows)(target, places.flat_index, rows)
    if written is None:
        return NotImplemented
    return places.unflat(written.to(x.dtype), x)
