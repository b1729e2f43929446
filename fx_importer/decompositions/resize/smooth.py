"""Decompositions of smooth resizing: antialiased, as two matmuls with weights, and of uint8.

A non-finite element of an antialiased image spreads to its whole row and column, as zero times infinity is NaN.

Eager's CPU kernel resizes uint8 along one axis after the other, in fixed point: weights are computed in float64 and
rounded to 16 bits, and the sums along each axis to uint8 (ATen, ``UpSampleKernel.cpp``). With more than four channels,
eager's numbers differ at some sizes: where 7x3 becomes 19x1, by up to 239 from those in float64, which these rules
follow within a half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import upsample_compute_output_size
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.static_shapes import are_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
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
    weights, _ = filtered(size, outputs, scale, filter, reach, dtype)
    return weights / torch.sum(weights, -1, keepdim=True)


def filtered(
    size: int, outputs: int, scale: float | Tensor, filter: Callable[[Tensor], Tensor], reach: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the filter's value for each of ``size`` elements in each of ``outputs``, and whether eager reads it."""
    width = torch.clamp(scale, min=1.0) if isinstance(scale, Tensor) else max(scale, 1.0)
    centre = ((torch.arange(outputs, dtype=dtype) + 0.5) * scale).unsqueeze(-1)
    position = torch.arange(size, dtype=dtype)
    low = torch.clamp(torch.floor(centre - reach * width + 0.5), min=0)
    high = torch.floor(centre + reach * width + 0.5)  # compared with places, which are all below the size
    weights = filter(torch.abs(position - centre + 0.5) / width)
    window = (position >= low) & (position < high)
    return torch.where(window, weights, torch.zeros_like(weights)), window


def _resize(
    x: Tensor, sizes: Sequence[int], aligned: bool, scales: Sequence[float | None], filter: Any, reach: int
) -> Any:
    matrices: list[Tensor] = []
    dtype = torch.promote_types(x.dtype, torch.float32)
    for size, outputs, scale_factor in zip(x.shape[-2:], sizes, positive_scales(scales, 2), strict=True):
        scale = step_of(size, outputs, aligned, scale_factor, dtype)
        matrices.append(weights_of(size, outputs, scale, filter, reach, dtype).to(x.dtype))
    return matrices[0] @ (x @ matrices[1].transpose(0, 1))


def step_of(size: int, outputs: int, aligned: bool, scale_factor: float | None, dtype: torch.dtype) -> float | Tensor:
    """Return the distance of outputs in elements, as a rank-0 tensor where a size is dynamic."""
    if not aligned and scale_factor is not None:
        return 1 / scale_factor
    if aligned and isinstance(outputs, int) and outputs <= 1:
        return 0.0
    distances = (size - 1, outputs - 1) if aligned else (size, outputs)
    if are_static(size, outputs):
        return distances[0] / distances[1]
    parts = [torch.scalar_tensor(distance, dtype=dtype) for distance in distances]
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


def _linear_weights(size: int, outputs: int, scale: Any, aligned: bool) -> Tensor:
    """Return the weight of each of ``size`` elements in each of ``outputs``: two neighbours, or one at the border."""
    position = torch.arange(outputs, dtype=torch.float64)
    position = torch.clamp(position * scale if aligned else (position + 0.5) * scale - 0.5, min=0)
    position = torch.minimum(position, torch.scalar_tensor(size - 1, dtype=torch.float64)).unsqueeze(-1)
    return triangle(torch.abs(torch.arange(size, dtype=torch.float64) - position))


def _triangle_weights(size: int, outputs: int, scale: Any, aligned: bool) -> Tensor:
    return weights_of(size, outputs, scale, triangle, 1, torch.float64)


def _cubic_weights(size: int, outputs: int, scale: Any, aligned: bool) -> Tensor:
    return weights_of(size, outputs, scale, cubic, 2, torch.float64)


def _rounded_sums(x: Tensor, weights: Tensor) -> Tensor:
    """Return the product of ``x`` [..., size] and the transpose of ``weights`` [outputs, size], as bytes in int32."""
    powers = 2 ** torch.arange(1, 23, dtype=torch.int32)
    fits = 0.5 + torch.amax(weights) * powers < 1 << 15
    one = torch.amax(torch.where(fits, powers, torch.ones_like(powers)))  # a weight of 1 in 16 bits
    whole = torch.trunc(weights * one + 0.5 * torch.sign(weights)).to(torch.int32)
    total = x @ whole.transpose(0, 1) + torch.div(one, 2, rounding_mode="floor")
    return torch.clamp(torch.div(total, one, rounding_mode="floor"), 0, 255)


def _of_bytes(operator: Any, weights: Callable[[int, int, Any, bool], Tensor]) -> Decomposition:
    @decomposes(operator)
    def rule(
        x: Tensor, sizes: Sequence[int], aligned: bool, scales_h: float | None = None, scales_w: float | None = None
    ) -> Any:
        if x.dtype is not torch.uint8:
            return NotImplemented
        result = x.to(torch.int32)
        scales = positive_scales((scales_h, scales_w), 2)
        for axis in (1, 0):
            size, outputs = x.shape[axis + 2], sizes[axis]
            if statically_known_true(size == outputs):  # whatever the scale is
                continue
            weight = weights(size, outputs, step_of(size, outputs, aligned, scales[axis], torch.float64), aligned)
            result = _rounded_sums(result if axis else result.mT, weight)
            result = result if axis else result.mT
        return result.to(torch.uint8)

    return rule


@decomposes(aten.upsample_bilinear2d.vec)
def bilinear_of_bytes(
    x: Tensor, sizes: Sequence[int] | None, aligned: bool, scale_factors: Sequence[float] | None
) -> Any:
    """Compute the sizes of the result."""
    if x.dtype is not torch.uint8:
        return NotImplemented
    outputs = upsample_compute_output_size(x.shape, sizes, scale_factors)
    return aten.upsample_bilinear2d.default(x, outputs, aligned, *(scale_factors or ()))


BYTE_RESIZING = (
    bilinear_of_bytes,
    _of_bytes(aten.upsample_bilinear2d.default, _linear_weights),
    _of_bytes(aten._upsample_bilinear2d_aa.default, _triangle_weights),
    _of_bytes(aten._upsample_bicubic2d_aa.default, _cubic_weights),
)
