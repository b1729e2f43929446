"""Decompositions of reducing scatters to pairwise masks of indices and positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import chunks, count, fits, masked_row_sums, positions
from fx_importer.fx_graph.operators import aten

Number = int | float

_REDUCTIONS = {"add": "sum", "multiply": "prod"}


def _neutral_element(kind: str, dtype: torch.dtype) -> Number:
    if kind in ("amax", "amin"):
        sign = -1 if kind == "amax" else 1
        if dtype.is_floating_point:
            return sign * math.inf
        return torch.iinfo(dtype).min if sign < 0 else torch.iinfo(dtype).max
    return 1 if kind == "prod" else 0


def _reduce(x: Tensor, kind: str, dim: int) -> Tensor:
    if kind == "prod":
        return torch.prod(x, dim, dtype=x.dtype)
    if kind in ("amax", "amin"):
        return torch.amax(x, dim) if kind == "amax" else torch.amin(x, dim)
    return torch.sum(x, dim, dtype=x.dtype)


def _combine(a: Tensor, b: Tensor, kind: str) -> Tensor:
    if kind == "prod":
        return a * b
    if kind in ("amax", "amin"):
        return torch.maximum(a, b) if kind == "amax" else torch.minimum(a, b)
    return a + b


def masked_reduce(
    hits: Tensor, source: Tensor, target: Tensor | None, kind: str, include_self: bool = True, empty: Number = 0
) -> Tensor:
    """Return the reduction along axis -2 of ``source`` where ``hits`` is true, combined with ``target``.

    Args:
        hits: [..., m, n], bool.
        source: broadcastable to the shape of ``hits``.
        target: [..., n], the initial values; None if there are none.
        kind: "sum", "prod", "mean", "amax" or "amin".
        empty: the value where nothing is hit, without a target.
    """
    neutral = torch.full((), _neutral_element(kind, source.dtype), dtype=source.dtype)
    result = _reduce(torch.where(hits, source, neutral), kind, -2)
    number = count(hits, -2)
    if target is not None and include_self:
        result = _combine(result, target, kind)
    if kind == "mean":
        number = number + 1 if target is not None and include_self else number
        divisor = torch.clamp(number, min=1).to(result.dtype)
        result = result / divisor if result.is_floating_point() else torch.floor_divide(result, divisor)
    if target is None:
        target, include_self = torch.full((), empty, dtype=source.dtype), False
    return result if include_self else torch.where(number > 0, result, target)


@decomposes(aten.scatter_reduce.two)
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Reduce the elements of ``source`` into the positions along ``dim`` that ``index`` has."""
    if reduce == "sum" and include_self:
        return torch.scatter_add(x, dim, index, leading_slice(source, index.shape))
    return _scatter_by_mask(x, dim, index, source, reduce, include_self)


@decomposes(aten.scatter_reduce.two)
def scatter_mean_of_integers(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Return means rounded down, as in eager: the C++ lowering rounds towards zero."""
    if reduce != "mean" or x.is_floating_point() or x.is_complex():
        return NotImplemented
    total = torch.scatter_reduce(x, dim, index, source, "sum", include_self=include_self)
    number = torch.scatter_add(torch.full_like(x, int(include_self)), dim, index, torch.ones_like(source))
    return torch.floor_divide(total, torch.clamp(number, min=1))


def _scatter_by_mask(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True) -> Any:
    if x.is_complex() or x.dtype == torch.bool:
        return NotImplemented
    if x.dim() == 0:
        index, source = index.reshape(1), source.reshape(1)
        of_one_axis = _scatter_by_mask(x.reshape(1), 0, index, source, reduce, include_self)
        return of_one_axis if of_one_axis is NotImplemented else of_one_axis.reshape(())
    if is_empty(index):
        return x.clone()
    dim = dim % x.dim()
    if index.dim() == 0:
        index, source = index.reshape(1), source.reshape(1)
    size = x.shape[dim]
    if not fits(*index.shape, size):
        return NotImplemented
    index, (source,), active = aligned(x, dim, index, source)
    source = leading_slice(source, index.shape).movedim(dim, -1)
    shape = [size if axis == dim else length for axis, length in enumerate(index.shape)]
    hits = index.movedim(dim, -1).unsqueeze(-1) == positions(size)
    hits = hits if active is None else hits & active.movedim(dim, -1).unsqueeze(-1)
    target = leading_slice(x, shape).movedim(dim, -1)
    result = masked_reduce(hits, source.unsqueeze(-1), target, reduce, include_self)
    return replace_leading_slice(x, result.movedim(-1, dim))


def aligned(x: Tensor, dim: int, index: Tensor, *sources: Tensor) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Return ``index`` and ``sources`` of a scatter in the sizes of ``x`` except along ``dim``, if one is dynamic.

    The third result is true where the index is given, and broadcasts to ``index``; None if it is given everywhere. The
    rest of ``x``, which may be empty, is then not a slice.
    """
    active: Tensor | None = None
    parts = [leading_slice(source, index.shape) for source in sources]
    for axis, (size, length) in enumerate(zip(x.shape, index.shape, strict=True)):
        if axis == dim or (isinstance(size, int) and isinstance(length, int)) or statically_known_true(size == length):
            continue
        places = positions(size)
        source_positions = torch.where(places < length, places, torch.full((), length - 1, dtype=torch.int32))
        index, *parts = (gathered(tensor, axis, source_positions) for tensor in (index, *parts))
        inside = (places < length).reshape([-1 if other == axis else 1 for other in range(x.dim())])
        active = inside if active is None else active & inside
    return index, parts, active


def gathered(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return slices of ``x``, or with an index of its rank, elements along ``dim``; TOSA gathers no bools."""
    wide = x.to(torch.int8) if x.dtype is torch.bool else x
    wide_index = index.long()
    result = wide.index_select(dim, wide_index) if index.dim() == 1 != x.dim() else torch.gather(wide, dim, wide_index)
    return result != 0 if x.dtype is torch.bool else result


def leading_slice(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the leading slice of ``x`` with ``shape``; a dynamic number of elements is gathered."""
    for axis, size in enumerate(shape):
        if statically_known_true(size == x.shape[axis]):
            continue
        x = aten.slice.Tensor(x, axis, 0, size) if isinstance(size, int) else gathered(x, axis, positions(size))
    return x


def replace_leading_slice(x: Tensor, part: Tensor) -> Tensor:
    """Return ``x`` with its leading slice replaced by ``part``."""
    for axis in reversed(range(x.dim())):
        size = part.shape[axis]
        if not statically_known_true(size == x.shape[axis]):
            rest = aten.slice.Tensor(leading_slice(x, part.shape[:axis]), axis, size)
            part = torch.cat([part, rest], axis)
    return part


@decomposes(aten.scatter_add.default)
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """Add the elements of ``source``; whole rows with one index are added by a matmul."""
    result = _scatter_rows_by_product(x, dim, index, source)
    return _scatter_by_mask(x, dim, index, source, "sum") if result is None else result


def _scatter_rows_by_product(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor | None:
    """Add rows along the axes that ``index`` is expanded along; None if there are none, or the mask is too large."""
    if not is_static(x, index, source) or not x.is_floating_point() or not x.dim() or not index.numel():
        return None
    dim = dim % x.dim()
    same = [axis for axis in range(x.dim()) if axis != dim and index.stride(axis) == 0 and index.shape[axis] > 1]
    others = [axis for axis in range(x.dim()) if axis != dim and axis not in same]
    size, number, lengths = x.shape[dim], index.shape[dim], [index.shape[axis] for axis in others]
    parts = chunks(number, math.prod(lengths) * size)
    if not same or parts is None:
        return None
    order = [*others, dim, *same]
    rows = leading_slice(source, index.shape).permute(order).reshape(*lengths, number, -1)
    shape = [size if axis == dim else length for axis, length in enumerate(index.shape)]
    for axis in same:
        index = index.narrow(axis, 0, 1)
    places = index.permute(order).reshape(*lengths, 1, number)
    added: list[Tensor] = []
    for start, end in parts:
        hits = places[..., start:end] == positions(size).unsqueeze(-1)
        added.append(masked_row_sums(hits, rows[..., start:end, :]))
    total = sum(added[1:], start=added[0]).reshape([shape[axis] for axis in order])
    return replace_leading_slice(
        x, leading_slice(x, shape) + total.permute([order.index(axis) for axis in range(x.dim())])
    )


@decomposes(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter(x: Tensor, dim: int, index: Tensor, source: Tensor | Number, *, reduce: str) -> Tensor:
    """Reduce by ``scatter_reduce``, the newer spelling; ``source`` may be a number."""
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype)
    return torch.scatter_reduce(x, dim, index, source, _REDUCTIONS[reduce])


@decomposes(aten.index_reduce.default)
def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """Reduce whole slices by ``scatter_reduce`` with an expanded index."""
    if x.dim() == 0:
        x1, source = x.reshape(1), source.reshape(1)
        result = torch.scatter_reduce(x1, 0, index.reshape(1), source, reduce, include_self=include_self)
        return result.reshape(())
    if source.dim() == 0:
        source = source.reshape(1)
    shape = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    places = index.reshape(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


SCATTER_VARIANTS = (scatter, index_reduce)
"""Other spellings of a reducing scatter, in terms of ``scatter_reduce``."""

REDUCING_SCATTERS = (scatter_reduce, scatter_add)
"""Rules for targets without a reducing scatter."""
