"""Decompositions of antialiased resizing to two matmuls with weights.

A non-finite element spreads to its whole row and column, as zero times infinity is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.resize.nearest import positive_scales
from fx_importer.fx_graph.operators import aten


def triangle(x: Tensor) -> Tensor:
    return torch.clamp(1 - x, min=0)


def cubic(x: Tensor) -> Tensor:
    """Return the cubic of Keys with a = -0.5, as in Pillow."""
    a = -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * a * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def weights_of(
    size: int,
    outputs: int,
    scale: float | Tensor,
    filter: Callable[[Tensor], Tensor],
    reach: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return the weight of each of ``size`` elements in each of ``outputs``; the rows sum to one."""
    width = torch.clamp(scale, min=1.0) if isinstance(scale, Tensor) else max(scale, 1.0)
    centre = ((torch.arange(outputs, dtype=dtype) + 0.5) * scale).unsqueeze(-1)
    place = torch.arange(size, dtype=dtype)
    low = torch.clamp(torch.floor(centre - reach * width + 0.5), min=0)
    high = torch.floor(centre + reach * width + 0.5)  # compared with places, which are all below the size
    weights = filter(torch.abs(place - centre + 0.5) / width)
    weights = torch.where((place >= low) & (place < high), weights, torch.zeros_like(weights))
    return weights / torch.sum(weights, -1, keepdim=True)


def _resize(
    x: Tensor, sizes: Sequence[int], aligned: bool, scales: Sequence[float | None], filter: Any, reach: int
) -> Any:
    matrices: list[Tensor] = []
    dtype = torch.promote_types(x.dtype, torch.float32)
    for size, outputs, given in zip(x.shape[-2:], sizes, positive_scales(scales, 2), strict=True):
        scale = step_of(size, outputs, aligned, given, dtype)
        matrices.append(weights_of(size, outputs, scale, filter, reach, dtype).to(x.dtype))
    return matrices[0] @ (x @ matrices[1].transpose(0, 1))


def step_of(size: int, outputs: int, aligned: bool, given: float | None, dtype: torch.dtype) -> float | Tensor:
    """Return the distance of outputs in elements, as a rank-0 tensor where a size is dynamic."""
    if not aligned and given is not None:
        return 1 / given
    if aligned and isinstance(outputs, int) and outputs <= 1:
        return 0.0
    distances = (size - 1, outputs - 1) if aligned else (size, outputs)
    if are_static(size, outputs):
        return distances[0] / distances[1]
    parts = [torch.scalar_tensor(each, dtype=dtype) for each in distances]
    return torch.div(parts[0], parts[1])


@decomposes(aten._upsample_bilinear2d_aa.default)
def bilinear_antialiased(
    x: Tensor, sizes: Sequence[int], align_corners: bool, scales_h: float | None = None, scales_w: float | None = None
) -> Any:
    """Resize bilinearly: weights are a triangle filter."""
    return _resize(x, sizes, align_corners, (scales_h, scales_w), triangle, 1)


@decomposes(aten._upsample_bicubic2d_aa.default)
def bicubic_antialiased(
    x: Tensor, sizes: Sequence[int], align_corners: bool, scales_h: float | None = None, scales_w: float | None = None
) -> Any:
    """Resize bicubically: weights are a cubic filter."""
    return _resize(x, sizes, align_corners, (scales_h, scales_w), cubic, 2)


ANTIALIASED_RESIZING = (bilinear_antialiased, bicubic_antialiased)
