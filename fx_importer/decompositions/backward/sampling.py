"""Gradients of sampling images at coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.pairs import is_static
from fx_importer.decompositions.table import decomposes

aten = torch.ops.aten

_BILINEAR, _NEAREST = 0, 1
"""Interpolations."""
_ZEROS, _BORDER = 0, 1
"""What is beyond the image."""


def _located(grid: Tensor, size: int, padding: int, aligned: bool) -> tuple[Tensor, Tensor]:
    """Return the places in pixels that coordinates of -1 … 1 stand for, and how fast they move with these."""
    if aligned:
        place, rate = (grid + 1) * ((size - 1) / 2), torch.full_like(grid, (size - 1) / 2)
    else:
        place, rate = ((grid + 1) * size - 1) / 2, torch.full_like(grid, size / 2)
    if padding == _ZEROS:
        return place, rate
    if padding != _BORDER:
        low, span = (0.0, float(size - 1)) if aligned else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(grid), torch.zeros_like(grid)
        away = place - low
        rate = torch.where(away < 0, -rate, rate)
        away = torch.abs(away)
        turns = torch.floor(away / span)
        rest = away - turns * span
        odd = turns - 2 * torch.floor(turns / 2) > 0
        place, rate = torch.where(odd, span - rest, rest) + low, torch.where(odd, -rate, rate)
    rate = torch.where((place > 0) & (place < size - 1), rate, torch.zeros_like(rate))
    return torch.clamp(place, 0, size - 1), rate


@decomposes(aten.grid_sampler_2d_backward.default)
def grid_sampler_2d_backward(
    grad: Tensor,
    image: Tensor,
    grid: Tensor,
    interpolation: int,
    padding: int,
    aligned: bool,
    output_mask: Sequence[bool],
) -> Any:
    """Each pixel that a sample is made of gets its share: (n, c, h, w) of images, (n, y, x, 2) of coordinates.

    Bilinear, and the nearest pixel, where coordinates have no gradient.
    """
    if interpolation not in (_BILINEAR, _NEAREST) or not is_static(grad, image, grid):
        return NotImplemented
    batch, channels, height, width = image.shape
    samples = grad.reshape(batch, channels, -1)
    x, x_rate = _located(grid[..., 0].reshape(batch, 1, -1), width, padding, aligned)
    y, y_rate = _located(grid[..., 1].reshape(batch, 1, -1), height, padding, aligned)
    of_image = torch.zeros((batch, channels, height * width), dtype=image.dtype)
    if interpolation == _NEAREST:
        corners = [(torch.round(x), torch.round(y), torch.ones_like(x), torch.ones_like(x), 0, 0)]
    else:
        left, top = torch.floor(x), torch.floor(y)
        across, down = x - left, y - top
        corners = [
            (left + a, top + b, across if a else 1 - across, down if b else 1 - down, 2 * a - 1, 2 * b - 1)
            for a in (0, 1)
            for b in (0, 1)
        ]
    of_x, of_y = torch.zeros_like(samples), torch.zeros_like(samples)
    pixels = image.reshape(batch, channels, -1)
    for column, row, wide, high, x_sign, y_sign in corners:
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        place = torch.clamp(row, 0, height - 1) * width + torch.clamp(column, 0, width - 1)
        index = place.to(torch.int64).expand(samples.shape)
        share = torch.where(inside, samples, torch.zeros((), dtype=grad.dtype))
        of_image = torch.scatter_add(of_image, 2, index, share * (wide * high))
        if x_sign:
            value = torch.gather(pixels, 2, index) * share
            of_x, of_y = of_x + value * high * x_sign, of_y + value * wide * y_sign
    of_grid = torch.stack([torch.sum(of_x, 1, True) * x_rate, torch.sum(of_y, 1, True) * y_rate], -1)
    return of_image.reshape(image.shape) if output_mask[0] else None, of_grid.reshape(grid.shape)
