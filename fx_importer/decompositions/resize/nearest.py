"""Decompositions of nearest-neighbor resizing to repetitions, or a gather per axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec, aten.upsample_nearest1d.vec)
def nearest(x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Any:
    """``result[i] = x[floor(i * size / new size)]`` along each spatial axis; a given scale takes precedence."""
    sizes = x.shape[2:]
    scales = scale_factors or [None] * len(sizes)
    known = output_size or [int(size * scale) for size, scale in zip(sizes, scales, strict=True) if scale]
    if not all(isinstance(size, int) for size in (*sizes, *known)) or len(known) != len(sizes) or 0 in sizes:
        return NotImplemented
    for axis, (size, new, scale) in enumerate(zip(sizes, known, scales, strict=True), 2):
        x = _resize_axis(x, axis, new, size / new if scale is None else 1 / scale)
    return x


def _resize_axis(x: Tensor, axis: int, new: int, step: float) -> Tensor:
    size = x.shape[axis]
    if new == size and step == 1:
        return x
    if new % size == 0 and step * new == size:
        times = new // size
        repeated = x.unsqueeze(axis + 1).expand(*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        return repeated.reshape(*x.shape[:axis], new, *x.shape[axis + 1 :])
    places = torch.floor(torch.arange(new, dtype=torch.float32, device=x.device) * step)
    return x.index_select(axis, torch.clamp(places, max=size - 1).to(torch.int64))


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
    scales = [*scales, *[None] * (len(output_size) - len(scales))]
    for axis, (new, scale) in enumerate(zip(output_size, scales, strict=True), 2):
        if are_static(x.shape[axis], new) and not from_edge:
            x = _resize_axis(x, axis, new, x.shape[axis] / new if scale is None else 1 / scale)
        else:
            x = _gather_axis(x, axis, new, scale, from_edge)
    return x


def _resize_dynamic(x: Tensor, output_size: Any, scale_factors: Sequence[float] | None, from_edge: float) -> Any:
    if are_static(*x.shape[2:], *(output_size or ())):
        return NotImplemented
    scales = scale_factors or [None] * (x.dim() - 2)
    for axis, scale in enumerate(scales, 2):
        x = _gather_axis(x, axis, output_size[axis - 2] if scale is None else None, scale, from_edge)
    return x


def _gather_axis(x: Tensor, axis: int, new: Any, scale: Any, from_edge: float) -> Tensor:
    """Resize ``axis`` to the size ``new``, by default its own times ``scale``."""
    size: Any = x.shape[axis]
    if new is None:
        whole = scale == int(scale)
        new = size * int(scale) if whole else torch.sym_int(size * scale)
    if scale is None:
        lengths = (torch.scalar_tensor(each, dtype=torch.float32) for each in (size, new))
        step = torch.div(*lengths)
    else:
        step = torch.full((), 1 / scale, dtype=torch.float32)
    places = torch.floor((torch.arange(new, dtype=torch.float32) + from_edge) * step).to(torch.int64)
    last = torch.scalar_tensor(size - 1, dtype=torch.int64)
    return x.index_select(axis, torch.minimum(places, last))


NEAREST_OF_DYNAMIC_SHAPE = (
    nearest_of_dynamic_shape,
    nearest_exact_of_dynamic_shape,
    nearest_of_size,
    nearest_exact_of_size,
)
