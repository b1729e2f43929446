"""Changes of shape, and movements of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.squeeze.dims)
def squeeze(x: Tensor, dim: Sequence[int]) -> Tensor:
    """Drop those of the axes ``dim`` that have size one; the torch dialect squeezes one axis at a time."""
    for axis in sorted((axis % max(x.dim(), 1) for axis in dim), reverse=True):
        x = x.squeeze(axis)
    return x


@decomposes(aten.squeeze.default)
def squeeze_all(x: Tensor) -> Any:
    """Drop the axes that are known to have size one, where other sizes are not known."""
    if is_static(x):
        return NotImplemented
    return squeeze(x, [axis for axis, size in enumerate(x.shape) if isinstance(size, int) and size == 1])


@decomposes(aten.constant_pad_nd.default)
def pad_of_any_size(x: Tensor, widths: Sequence[int], value: float = 0) -> Any:
    """Joins of the tensor with what surrounds it, where sizes are not known; pads by less than nothing are slices."""
    if is_static(x):
        return NotImplemented
    for number, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        axis = x.dim() - 1 - number
        first, last = _dropped(before), _dropped(after)
        if first or last:
            x = x.narrow(axis, first, x.shape[axis] - first - last)
        shape = list(x.shape)
        parts = [x]
        if not isinstance(before, int) or before > 0:
            parts.insert(0, torch.full([*shape[:axis], before, *shape[axis + 1 :]], value, dtype=x.dtype))
        if not isinstance(after, int) or after > 0:
            parts.append(torch.full([*shape[:axis], after, *shape[axis + 1 :]], value, dtype=x.dtype))
        x = torch.cat(parts, axis)
    return x


def _dropped(width: int) -> int:
    """Return how many elements a pad of ``width`` takes away."""
    return max(-width, 0) if isinstance(width, int) else 0


@decomposes(aten.roll.default)
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Move the elements on by ``shifts`` along ``dims`` (through the flat tensor, if none is given), around the end."""
    if not dims:
        return roll(x.flatten(), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim] if x.dim() else 1
        if size and shift % size:
            split = size - shift % size
            x = torch.cat([x.narrow(dim, split, size - split), x.narrow(dim, 0, split)], dim)
    return x


@decomposes(aten.constant_pad_nd.default)
def pad(x: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    """Pads by less than nothing are slices; the rest stays."""
    if all(not isinstance(width, int) or width >= 0 for width in widths):
        return NotImplemented
    for number, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        axis = x.dim() - 1 - number
        x = x.narrow(axis, _dropped(before), x.shape[axis] - _dropped(before) - _dropped(after))
    return aten.constant_pad_nd(x, [max(width, 0) for width in widths], value)


@decomposes(aten.resize.default)
def resize(x: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Any:
    """Take the first elements as a tensor of ``size``. What one that grows is filled with, nobody says."""
    count = math.prod(size)
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format) or count > x.numel():
        return NotImplemented
    return x.flatten()[:count].reshape(size)


@decomposes(aten.empty_permuted.default)
def empty_permuted(size: Sequence[int], order: Sequence[int], **settings: Any) -> Tensor:
    """What is in no particular order has no particular layout."""
    return aten.empty.memory_format(size, **settings)


@decomposes(aten._efficientzerotensor.default)
def zeros_without_memory(size: Sequence[int], **settings: Any) -> Tensor:
    """The gradients of what has none: zeros."""
    return torch.zeros(size, **settings)
