"""Decompositions of ``squeeze``, ``repeat`` and ``resize``: changes of shape only."""

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
def repeat_of_no_elements(x: Tensor, repeats: Sequence[int]) -> Any:
    """Return an empty tensor if a count or size is statically 0: the C++ lowering divides by the number of elements."""
    sizes = [1] * (len(repeats) - x.dim()) + list(x.shape)
    shape = [0 if _is_zero(n) or _is_zero(size) else n * size for n, size in zip(repeats, sizes, strict=True)]
    return torch.full(shape, 0, dtype=x.dtype) if any(map(_is_zero, shape)) else NotImplemented


def _is_zero(size: int | torch.SymInt) -> bool:
    return isinstance(size, int) and size == 0


@decomposes(aten.resize.default)
def resize(x: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Any:
    """Return the first elements as a tensor of ``size``; the contents of a larger one are undefined, so no match."""
    count = math.prod(size)
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format) or count > x.numel():
        return NotImplemented
    return x.flatten()[:count].reshape(size)
