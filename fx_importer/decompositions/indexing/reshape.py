"""Decompositions of ``squeeze``, ``repeat``, ``resize``, splits, ``roll`` and ``*_copy``: changes of shape or order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.squeeze.dims)
def squeeze(x: Tensor, dim: Sequence[int]) -> Tensor:
    """Squeeze the axes ``dim`` one by one: the torch dialect squeezes one axis at a time."""
    for axis in sorted((axis % max(x.dim(), 1) for axis in dim), reverse=True):
        x = x.squeeze(axis)
    return x


@decomposes(aten.squeeze.default)
def squeeze_of_dynamic_shape(x: Tensor) -> Any:
    """Squeeze the axes of static size one, if other sizes are dynamic."""
    if is_static(x):
        return NotImplemented
    return squeeze(x, [axis for axis, size in enumerate(x.shape) if isinstance(size, int) and size == 1])


@decomposes(aten.repeat.default)
def repeat_of_any_size(x: Tensor, repeats: Sequence[int]) -> Any:
    """Repeat a tensor with sizes that are, or may be, 0: the C++ lowerings divide by the number of elements."""
    sizes = [1] * (len(repeats) - x.dim()) + list(x.shape)
    shape = [0 if _is_zero(n) or _is_zero(size) else n * size for n, size in zip(repeats, sizes, strict=True)]
    if any(map(_is_zero, shape)):
        return torch.full(shape, 0, dtype=x.dtype)
    if is_static(x) or not all(isinstance(n, int) for n in repeats):
        return NotImplemented
    apart = [part for n, size in zip(repeats, sizes, strict=True) for part in ([1, size] if n > 1 else [size])]
    wide = [part for n, size in zip(repeats, sizes, strict=True) for part in ([n, size] if n > 1 else [size])]
    return x.reshape(apart).expand(wide).reshape(shape)


def _is_zero(size: int | torch.SymInt) -> bool:
    return isinstance(size, int) and size == 0


@decomposes(aten.resize.default)
def resize(x: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Any:
    """Return the first elements as a tensor of ``size``; the contents of a larger one are undefined, so no match."""
    count = math.prod(size)
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format) or count > x.numel():
        return NotImplemented
    return x.flatten()[:count].reshape(size)


@decomposes(aten.split_with_sizes.default)
def split_with_sizes(x: Tensor, sizes: Sequence[int | SymInt], dim: int = 0) -> Any:
    """Return slices, the last one with an open end, if a size is dynamic."""
    if not any(isinstance(size, SymInt) for size in sizes):
        return NotImplemented
    starts = [sum(sizes[:part]) for part in range(len(sizes))]
    ends = [*starts[1:], None]
    return [aten.slice.Tensor(x, dim, start, end) for start, end in zip(starts, ends, strict=True)]


@decomposes(aten.roll.default)
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Rotate elements by ``shifts`` along ``dims``, or along the flattened tensor if none are given.

    Dynamic axes, and shifts by items, are gathered: the C++ decomposition slices, and is wrong where a shift is
    beyond the size.
    """
    if not dims:
        return roll(x.flatten(), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim] if x.dim() else 1
        if isinstance(size, SymInt) or isinstance(shift, SymInt):
            x = x.index_select(dim, torch.remainder(torch.arange(size) - shift, torch.full((), size)))
        elif size and shift % size:
            split = size - shift % size
            x = torch.cat([x.narrow(dim, split, size - split), x.narrow(dim, 0, split)], dim)
    return x


def _copy(operator: OpOverload, view: Callable[..., Any]) -> Decomposition:
    """Return the rule that clones the result of ``view``; the clones are dropped as identities later."""

    @decomposes(operator)
    def rule(*args: Any, **kwargs: Any) -> Any:
        return tree_map(torch.clone, view(*args, **kwargs))

    return rule


COPIES = (
    _copy(aten._reshape_alias_copy.default, lambda x, size, stride: aten.reshape.default(x, size)),
    _copy(aten.as_strided_copy.default, aten.as_strided.default),
    _copy(aten.diagonal_copy.default, aten.diagonal.default),
    _copy(aten.detach_copy.default, aten.detach.default),
    _copy(aten.narrow_copy.default, aten.narrow.default),
    _copy(aten.permute_copy.default, aten.permute.default),
    _copy(aten.select_copy.int, aten.select.int),
    _copy(aten.slice_copy.Tensor, aten.slice.Tensor),
    _copy(aten.split_copy.Tensor, aten.split.Tensor),
    _copy(aten.unbind_copy.int, aten.unbind.int),
    _copy(aten.view_as_complex_copy.default, aten.view_as_complex.default),
    _copy(aten.view_as_real_copy.default, aten.view_as_real.default),
    _copy(aten.view_copy.default, aten.reshape.default),
    _copy(aten.view_copy.dtype, aten.view.dtype),
)
