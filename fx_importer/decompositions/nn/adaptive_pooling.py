"""Decompositions of adaptive pools: by windows for static shapes, by a mask per axis for dynamic ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static, is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.nn.pooling import adaptive_windows, window_maxima, window_sums
from fx_importer.fx_graph.operators import aten


@decomposes(
    *(aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default),
    *(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default),
)
def adaptive_avg_pool_without_elements(x: Tensor, output_size: Sequence[int]) -> Any:
    """Return a tensor without elements where the input or the output has none."""
    shape = [*x.shape[: x.dim() - len(output_size)], *output_size]
    return (
        torch.zeros(shape, dtype=x.dtype) if 0 in [size for size in shape if isinstance(size, int)] else NotImplemented
    )


@decomposes(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool_without_elements(x: Tensor, output_size: Sequence[int]) -> Any:
    """Return maxima and indices without elements where the input or the output has none."""
    result = adaptive_avg_pool_without_elements(x, output_size)
    return result if result is NotImplemented else (result, torch.zeros_like(result, dtype=torch.int64))


WITHOUT_ELEMENTS = (adaptive_avg_pool_without_elements, adaptive_max_pool_without_elements)


@decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """Return the maxima of the windows and their flat indices."""
    axes = len(output_size)
    sizes = x.shape[-axes:]
    if not are_static(*sizes) or is_empty(x) or 0 in output_size:
        return adaptive_max_pool_without_elements(x, output_size)
    if axes == 2 and all(size % number == 0 for size, number in zip(sizes, output_size, strict=True)):
        batch = x if x.dim() == 4 else x.unsqueeze(0)
        kernel = [size // number for size, number in zip(sizes, output_size, strict=True)]
        results = aten.max_pool2d_with_indices(batch, kernel)
        return results if x.dim() == 4 else tuple(result.squeeze(0) for result in results)
    return window_maxima(x, [adaptive_windows(size, number) for size, number in zip(sizes, output_size, strict=True)])


@decomposes(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """Return the averages of the windows."""
    if not are_static(*x.shape[-3:]) or is_empty(x) or 0 in output_size:
        return adaptive_avg_pool_without_elements(x, output_size)
    if list(output_size) == [1, 1, 1]:
        return torch.mean(x, (-3, -2, -1), keepdim=True)
    windows = [adaptive_windows(size, number) for size, number in zip(x.shape[-3:], output_size, strict=True)]
    total = window_sums(x, windows)
    for axis, window in enumerate(reversed(windows)):
        total = total / (window.ends - window.starts).to(x.dtype).reshape(-1, *[1] * axis)
    return total


def _is_dynamic(x: Tensor, output_size: Sequence[int]) -> bool:
    """Return whether an input size is dynamic and the output size static."""
    divided = x.shape[-len(output_size) :]
    return not are_static(*divided) and are_static(*output_size)


def _window_masks(size: Any, outputs: int) -> tuple[Tensor, Tensor]:
    """Return the mask of each window, [outputs, size], and the window lengths, [outputs].

    Window ``i`` begins at ``floor(i * size / outputs)``, and ends before ``ceil((i + 1) * size / outputs)``.
    """
    window, position = torch.arange(outputs), torch.arange(size)
    starts = torch.div(window * size, outputs, rounding_mode="floor")
    ends = torch.div((window + 1) * size + (outputs - 1), outputs, rounding_mode="floor")
    inside = torch.logical_and(position >= starts.unsqueeze(-1), position < ends.unsqueeze(-1))
    return inside, ends - starts


@decomposes(aten.adaptive_avg_pool1d.default, aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool_of_dynamic_shape(x: Tensor, output_size: Sequence[int]) -> Any:
    """Return the averages of the windows, axis by axis, for dynamic input sizes."""
    if not _is_dynamic(x, output_size):
        return NotImplemented
    for axis, outputs in enumerate(output_size, x.dim() - len(output_size)):
        inside, lengths = _window_masks(x.shape[axis], outputs)
        rows = x.movedim(axis, -1).unsqueeze(-2)
        total = torch.sum(torch.where(inside, rows, torch.zeros((), dtype=x.dtype)), -1)
        x = (total / lengths.to(x.dtype)).movedim(-1, axis)
    return x


@decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool_of_dynamic_shape(x: Tensor, output_size: Sequence[int]) -> Any:
    """Return the maxima of the windows and their flat indices, for dynamic input sizes."""
    if not _is_dynamic(x, output_size) or not x.is_floating_point():
        return NotImplemented
    least = torch.full((), -math.inf, dtype=x.dtype)
    sizes = x.shape[-len(output_size) :]
    places: Tensor | None = None
    for axis in reversed(range(len(sizes))):
        at = x.dim() - len(sizes) + axis
        inside, _ = _window_masks(sizes[axis], output_size[axis])
        x, position = torch.max(torch.where(inside, x.movedim(at, -1).unsqueeze(-2), least), -1)
        x, position = x.movedim(-1, at), position.movedim(-1, at)
        behind = math.prod(sizes[axis + 1 :])
        places = position if places is None else position * behind + places.gather(at, position)
    return x, places


ADAPTIVE_OF_DYNAMIC_SHAPE = (adaptive_avg_pool_of_dynamic_shape, adaptive_max_pool_of_dynamic_shape)
