"""Gradients of grid sampling of images and volumes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
"""Interpolation modes."""
_ZEROS, _BORDER = 0, 1
"""Padding modes."""
_CUBIC = -0.75
"""The parameter a of cubic convolution, as in torch."""


@dataclass(frozen=True)
class _Taps:
    """The elements along one axis that contribute to samples; each tensor is [n, taps, samples]."""

    places: Tensor
    weights: Tensor
    slopes: Tensor
    """Derivatives of the weights with respect to the coordinate."""


def _apply_padding(position: Tensor, size: int, padding: int, aligned: bool) -> tuple[Tensor, Tensor]:
    """Return positions in pixels after padding, and their derivatives with respect to the positions before."""
    rate = torch.ones_like(position)
    if padding == _ZEROS:
        return position, rate
    if padding != _BORDER:
        low, span = (0.0, float(size - 1)) if aligned else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(position), torch.zeros_like(position)
        away = position - low
        rate = torch.where(away < 0, -rate, rate)
        away = torch.abs(away)
        turns = torch.floor(away / span)
        rest = away - turns * span
        odd = turns - 2 * torch.floor(turns / 2) > 0
        position, rate = torch.where(odd, span - rest, rest) + low, torch.where(odd, -rate, rate)
    rate = torch.where((position > 0) & (position < size - 1), rate, torch.zeros_like(rate))
    return torch.clamp(position, 0, size - 1), rate


def _cubic(distance: Tensor, near: bool) -> tuple[Tensor, Tensor]:
    """Return the weight of an element at distance 0 … 1 (``near``) or 1 … 2, and its derivative."""
    a, d = _CUBIC, distance
    if near:
        return ((a + 2) * d - (a + 3)) * d * d + 1, (3 * (a + 2) * d - 2 * (a + 3)) * d
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a, (3 * a * d - 10 * a) * d + 8 * a


def _taps(grid: Tensor, size: int, interpolation: int, padding: int, aligned: bool) -> _Taps:
    """Return the taps along an axis of ``size`` for coordinates -1 … 1 in ``grid``, [n, 1, samples]."""
    position = (grid + 1) * ((size - 1) / 2) if aligned else ((grid + 1) * size - 1) / 2
    scale = ((size - 1) if aligned else size) / 2
    if interpolation == _BICUBIC:  # padding applies after the weights are computed
        before = torch.floor(position)
        rest = position - before
        far, far_slope = _cubic(torch.cat([rest + 1, 2 - rest], 1), near=False)
        near, near_slope = _cubic(torch.cat([rest, 1 - rest], 1), near=True)
        at, _ = _apply_padding(torch.cat([before - 1, before + 2, before, before + 1], 1), size, padding, aligned)
        ahead = torch.tensor([scale, -scale, scale, -scale], dtype=position.dtype).reshape(1, 4, 1)
        return _Taps(torch.round(at), torch.cat([far, near], 1), torch.cat([far_slope, near_slope], 1) * ahead)
    position, rate = _apply_padding(position, size, padding, aligned)
    if interpolation == _NEAREST:
        return _Taps(torch.round(position), torch.ones_like(position), torch.zeros_like(position))
    before, rate = torch.floor(position), rate * scale
    rest = position - before
    return _Taps(torch.cat([before, before + 1], 1), torch.cat([1 - rest, rest], 1), torch.cat([-rate, rate], 1))


@decomposes(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    grad: Tensor,
    image: Tensor,
    grid: Tensor,
    interpolation: int,
    padding: int,
    aligned: bool,
    output_mask: Sequence[bool],
) -> Any:
    """Return the gradients of image and grid.

    Images are (n, c, h, w), grids (n, y, x, 2), or with one more axis; the last axis of a grid is in order x, y(, z).
    With nearest interpolation the gradient of the grid is zero.
    """
    if interpolation not in (_BILINEAR, _NEAREST, _BICUBIC) or not is_static(grad, image, grid):
        return NotImplemented
    batch, channels, *sizes = image.shape
    axes, number = len(sizes), math.prod(grid.shape[1:-1])
    taps = [
        _taps(grid[..., axes - 1 - axis].reshape(batch, 1, -1), size, interpolation, padding, aligned)
        for axis, size in enumerate(sizes)
    ]

    def joined(parts: Sequence[Tensor], join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return [n, all taps, samples], the outer combination of the parts of each axis."""
        result = parts[0]
        for part in parts[1:]:
            result = join(result.unsqueeze(2), part.unsqueeze(1)).reshape(batch, -1, number)
        return result

    inside = joined(
        [(tap.places >= 0) & (tap.places <= size - 1) for tap, size in zip(taps, sizes, strict=True)], torch.logical_and
    )
    whole = [torch.clamp(tap.places, 0, size - 1).to(torch.int64) for tap, size in zip(taps, sizes, strict=True)]
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(axes)]
    index = joined([base * step for base, step in zip(whole, steps, strict=True)], torch.add)
    index = index.reshape(batch, 1, -1).expand(batch, channels, -1)
    zero = torch.zeros((), dtype=grad.dtype)
    # [n, channels, all taps, samples]
    share = torch.where(inside.unsqueeze(1), grad.reshape(batch, channels, 1, number), zero)
    of_image: Tensor | None = None
    if output_mask[0]:
        parts = share * joined([tap.weights for tap in taps], torch.mul).unsqueeze(1)
        zeros = torch.zeros((batch, channels, math.prod(sizes)), dtype=image.dtype)
        of_image = torch.scatter_add(zeros, 2, index, parts.reshape(batch, channels, -1)).reshape(image.shape)
    if interpolation == _NEAREST:
        return of_image, torch.zeros_like(grid)
    read = torch.gather(image.reshape(batch, channels, -1), 2, index).reshape(share.shape)
    value = torch.sum(read * share, 1)
    of_grid: list[Tensor] = []
    for axis in reversed(range(axes)):
        slopes = joined([tap.slopes if k == axis else tap.weights for k, tap in enumerate(taps)], torch.mul)
        of_grid.append(torch.sum(value * slopes, 1))
    return of_image, torch.stack(of_grid, -1).reshape(grid.shape)
