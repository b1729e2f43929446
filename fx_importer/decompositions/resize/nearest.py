"""Decompositions of nearest-neighbor resizing to repetitions, or a gather per axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec, aten.upsample_nearest1d.vec)
def nearest(x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Any:
    """``result[i] = x[floor(i * size / new size)]`` along each spatial axis; a given scale takes precedence."""
    sizes = x.shape[2:]
    scales = positive_scales(scale_factors or (), len(sizes))
    known = output_size or [int(size * scale) for size, scale in zip(sizes, scales, strict=True) if scale]
    if not are_static(*sizes, *known) or len(known) != len(sizes) or 0 in sizes:
        return NotImplemented
    for axis, (size, new, scale) in enumerate(zip(sizes, known, _read_scales(sizes, known, scales), strict=True), 2):
        x = _resize_axis(x, axis, new, size / new if scale is None else 1 / scale)
    return x


_SMALL_IMAGE = 128
"""The largest height and width, added, of a small image; eager has another kernel for these."""


def _read_scales(sizes: Sequence[int], outputs: Sequence[int], scales: Sequence[float | None]) -> list[float | None]:
    """Return the scales that eager reads.

    Its kernel for small images, `cpu_upsample_nearest_channels_last`, ignores the scale of an axis whose size stays or
    doubles: 4 times 2.1 are 8, which is twice 4. (It also takes larger images whose channels are last in memory.)
    """
    if len(sizes) != 2 or sum(outputs) > _SMALL_IMAGE:
        return list(scales)
    return [{size: 1.0, 2 * size: 2.0}.get(new, scale) for size, new, scale in zip(sizes, outputs, scales, strict=True)]


def positive_scales(scales: Sequence[float | None], axes: int) -> list[float | None]:
    """Return a scale for each axis; None where the ratio of the sizes is meant: no scale is given, or none above 0."""
    return [scale if scale is not None and scale > 0 else None for scale in [*scales, *[None] * (axes - len(scales))]]


def _resize_axis(x: Tensor, axis: int, new: int, step: float) -> Tensor:
    size = x.shape[axis]
    if new == size and step == 1:
        return x
    if new % size == 0 and step * new == size and _repeats(size, new):
        times = new // size
        repeated = x.unsqueeze(axis + 1).expand(*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        return repeated.reshape(*x.shape[:axis], new, *x.shape[axis + 1 :])
    places = torch.floor(torch.arange(new, dtype=torch.float32, device=x.device) * step)
    return x.index_select(axis, torch.clamp(places, max=size - 1).to(torch.int64))


def _repeats(size: int, new: int) -> bool:
    """Return whether eager repeats each element ``new / size`` times: in float32, 41 times 2 / 82 is less than 1."""
    return np.array_equal(_places(size, new, None), np.arange(new) * size // new)


@decomposes(aten.upsample_nearest2d.vec)
def nearest_as_eager(x: Tensor, output_size: Any, scale_factors: Sequence[float] | None) -> Any:
    """Resize as `nearest` where the C++ lowering reads other elements than eager.

    It divides by scales, also by those that eager does not read, where eager multiplies with their inverse: in float32,
    1 / (2 / 14) is less than 7.
    """
    sizes = x.shape[2:]
    if not are_static(*sizes, *(output_size or ())):
        return NotImplemented
    scales = positive_scales(scale_factors or (), len(sizes))
    outputs = output_size or [int(size * scale) for size, scale in zip(sizes, scales, strict=True) if scale]
    if len(outputs) != len(sizes) or 0 in (*sizes, *outputs):
        return NotImplemented
    read = _read_scales(sizes, outputs, scales)
    same = all(
        np.array_equal(_places(size, new, of_eager), _places_by_division(size, new, scale))
        for size, new, of_eager, scale in zip(sizes, outputs, read, scales, strict=True)
    )
    return NotImplemented if same else nearest(x, output_size, scale_factors)


def _places(size: int, new: int, scale: float | None) -> Any:
    """Return the elements that eager reads along an axis, int64 [new]: it multiplies in float32."""
    places = np.arange(new, dtype=np.float32) * np.float32(size / new if scale is None else 1 / scale)
    return np.minimum(places.astype(np.int64), size - 1)


def _places_by_division(size: int, new: int, scale: float | None) -> Any:
    """Return the elements that the C++ lowering reads along an axis, int64 [new]."""
    places = np.arange(new, dtype=np.float32) / np.float32(new / size if scale is None else scale)
    return np.minimum(places.astype(np.int64), size - 1)


@decomposes(aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec, aten.upsample_nearest1d.vec)
def nearest_of_dynamic_shape(x: Tensor, output_size: Any, scale_factors: Sequence[float] | None) -> Any:
    """Resize as `nearest`, with dynamic sizes."""
    return _resize_dynamic(x, output_size, scale_factors, 0.0)


@decomposes(
    *(aten._upsample_nearest_exact1d.vec, aten._upsample_nearest_exact2d.vec, aten._upsample_nearest_exact3d.vec)
)
def nearest_exact_of_dynamic_shape(x: Tensor, output_size: Any, scale_factors: Sequence[float] | None) -> Any:
    """``result[i] = x[floor((i + 0.5) * size / new size)]``, with dynamic sizes."""
    return _resize_dynamic(x, output_size, scale_factors, 0.5)


@decomposes(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
def nearest_of_size(x: Tensor, output_size: Sequence[int], *scales: float | None) -> Any:
    """Resize as `nearest`, also with dynamic sizes."""
    return _resize_to(x, output_size, scales, 0.0)


@decomposes(
    *(aten._upsample_nearest_exact1d.default, aten._upsample_nearest_exact2d.default),
    aten._upsample_nearest_exact3d.default,
)
def nearest_exact_of_size(x: Tensor, output_size: Sequence[int], *scales: float | None) -> Any:
    """Resize as `nearest_exact_of_dynamic_shape`, also with static sizes."""
    return _resize_to(x, output_size, scales, 0.5)


def _resize_to(x: Tensor, output_size: Sequence[int], scales: Sequence[float | None], from_edge: float) -> Any:
    """Resize to ``output_size``, at steps of the inverse scales; elements beyond the last one repeat it."""
    sizes, scales = x.shape[2:], positive_scales(scales, len(output_size))
    if are_static(*sizes, *output_size) and not from_edge:
        scales = _read_scales(sizes, output_size, scales)
    small = _small(output_size) if not from_edge else None
    for axis, (size, new, scale) in enumerate(zip(sizes, output_size, scales, strict=True), 2):
        if are_static(size, new) and not from_edge:
            x = _resize_axis(x, axis, new, size / new if scale is None else 1 / scale)
        else:
            x = _gather_axis(x, axis, new, scale, from_edge, small)
    return x


def _resize_dynamic(x: Tensor, output_size: Any, scale_factors: Sequence[float] | None, from_edge: float) -> Any:
    sizes = x.shape[2:]
    if are_static(*sizes, *(output_size or ())):
        return NotImplemented
    scales = scale_factors or [None] * len(sizes)
    outputs = output_size or [_scaled(size, scale) for size, scale in zip(sizes, scale_factors or (), strict=True)]
    small = _small(outputs) if not from_edge else None
    for axis, (new, scale) in enumerate(zip(outputs, scales, strict=True), 2):
        x = _gather_axis(x, axis, new, scale, from_edge, small)
    return x


def _scaled(size: Any, scale: float) -> Any:
    return size * int(scale) if scale == int(scale) else torch.sym_int(size * scale)


def _small(outputs: Sequence[Any]) -> Tensor | None:
    """Return whether an image is small, as a tensor of rank 0; None if it is not one."""
    return _length(sum(outputs)) <= _SMALL_IMAGE if len(outputs) == 2 else None


def _length(size: Any) -> Tensor:
    return torch.scalar_tensor(size, dtype=torch.float32)


def _gather_axis(x: Tensor, axis: int, new: Any, scale: Any, from_edge: float, small: Tensor | None) -> Tensor:
    """Resize ``axis`` to the size ``new``, at steps of the inverse scale, which a ``small`` image may not read."""
    size: Any = x.shape[axis]
    step = torch.div(_length(size), _length(new)) if scale is None else torch.full((), 1 / scale, dtype=torch.float32)
    if scale is not None and small is not None and scale not in (1, 2):
        for times in (1, 2):
            step = torch.where(small & (_length(new) == _length(times * size)), 1 / times, step)
    places = torch.floor((torch.arange(new, dtype=torch.float32) + from_edge) * step).to(torch.int64)
    last = torch.scalar_tensor(size - 1, dtype=torch.int64)
    return x.index_select(axis, torch.minimum(places, last))


NEAREST_OF_DYNAMIC_SHAPE = (
    nearest_as_eager,
    nearest_of_dynamic_shape,
    nearest_exact_of_dynamic_shape,
    nearest_of_size,
    nearest_exact_of_size,
)
