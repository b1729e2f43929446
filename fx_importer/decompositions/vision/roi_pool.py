"""Decompositions of ``roi_pool``, the maximum of each bin, and ``ps_roi_pool``, its mean, and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.vision.regions import (
    add_to_channels,
    bin_numbers,
    channel_mapping,
    gather_rows,
    index_of_pixels,
    one_hot_images,
    quotient,
    repeat_up_to,
    round_half_away,
    rows_of_pixels,
)
from fx_importer.decompositions.vision.roi_align import spread_by_channel


@dataclass(frozen=True)
class _Windows:
    """The pixels of each bin along an axis, from ``start`` to before ``end``: int64 [boxes, bins]."""

    start: Tensor
    end: Tensor

    @classmethod
    def of(cls, low: Tensor, high: Tensor, bins: int, length: int, last: int) -> _Windows:
        """Return the windows of regions from pixel ``low``, at least one pixel long, with bounds of at most ``last``.

        ``length`` is added to the difference of ``high`` and ``low``, which are rounded coordinates.
        """
        size = quotient((high - low + length).clamp(min=1), float(bins))
        number = torch.arange(bins, dtype=low.dtype)
        size, low = size.unsqueeze(1), low.unsqueeze(1)
        start = (torch.floor(number * size) + low).clamp(0, last)
        end = (torch.ceil((number + 1) * size) + low).clamp(0, last)
        return cls(start.to(torch.int64), end.to(torch.int64))

    @property
    def number(self) -> Tensor:
        """The number of pixels in each window."""
        return (self.end - self.start).clamp(min=0)


def _regions(rois: Tensor, scale: float) -> tuple[Tensor, ...]:
    """Return the image of each region, and its left, top, right and bottom in whole pixels, as floats."""
    return rois[:, 0].to(torch.int64), *(round_half_away(rois[:, column] * scale) for column in range(1, 5))


def _visit(turn: Tensor, y: _Windows, x: _Windows) -> tuple[Tensor, Tensor, Tensor]:
    """Return the coordinates of pixel ``turn`` of each bin, in row-major order, and whether the bin has it."""
    tall, wide = y.number.unsqueeze(2), x.number.unsqueeze(1)
    across = wide.clamp(min=1)
    there = turn < tall * wide
    down = y.start.unsqueeze(2) + torch.div(turn, across, rounding_mode="floor")
    right = x.start.unsqueeze(1) + torch.remainder(turn, across)
    return torch.where(there, down, 0), torch.where(there, right, 0), there


def roi_pool(images: Tensor, rois: Tensor, spatial_scale: float, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Return the maximum of each bin, and its pixel ``y * width + x`` in int32.

    A bin without pixels is 0, its pixel -1. NaN is not larger than a number, and the maximum begins at the lowest
    finite one, as in eager.
    """
    channels, height, width = images.shape[1:]
    shape = (rois.shape[0], channels, rows, columns)
    if is_empty(rois) or is_empty(images):
        return torch.zeros(shape, dtype=images.dtype), torch.zeros(shape, dtype=torch.int32)
    image, left, top, right, bottom = _regions(rois, spatial_scale)
    y = _Windows.of(top, bottom, rows, 1, height)
    x = _Windows.of(left, right, columns, 1, width)
    number = y.number.unsqueeze(2) * x.number.unsqueeze(1)

    def step(turn: Tensor, best: Tensor, position: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        pixels, image, y0, y1, x0, x1, height, width = rest
        down, right, there = _visit(turn, _Windows(y0, y1), _Windows(x0, x1))
        value = gather_rows(pixels, index_of_pixels(image.reshape(-1, 1, 1), down, right, height, width))
        better = there.unsqueeze(3) & (value > best)
        here = (down * width + right).to(torch.int32).unsqueeze(3)
        return torch.where(better, value, best), torch.where(better, here, position)

    flat = (rois.shape[0], rows, columns, channels)
    state = (
        torch.full(flat, torch.finfo(images.dtype).min, dtype=images.dtype),
        torch.full(flat, -1, dtype=torch.int32),
    )
    invariants = (rows_of_pixels(images), image, y.start, y.end, x.start, x.end)
    best, position = repeat_up_to(number, step, state, invariants, (height, width))
    best = torch.where((number == 0).unsqueeze(3), 0.0, best)
    return best.permute(0, 3, 1, 2), position.permute(0, 3, 1, 2)


def roi_pool_backward(
    grad: Tensor,
    rois: Tensor,
    argmax: Tensor,
    spatial_scale: float,
    rows: int,
    columns: int,
    images: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """Return the gradient of the images: each bin's is added at its maximum."""
    del spatial_scale, rows, columns
    if is_empty(grad):
        return torch.zeros((images, channels, height, width), dtype=grad.dtype)
    image = rois[:, 0].to(torch.int64).reshape(-1, 1, 1, 1)
    index = image * (height * width) + argmax.to(torch.int64).clamp(min=0)
    value = torch.where(argmax < 0, 0.0, grad)
    index, value = (tensor.permute(1, 0, 2, 3).reshape(channels, -1) for tensor in (index, value))
    total = add_to_channels(value, index, images * height * width)
    return total.reshape(channels, images, height, width).permute(1, 0, 2, 3)


def _position_sensitive_windows(
    rois: Tensor, scale: float, rows: int, columns: int, last_row: int, last_column: int
) -> tuple[Tensor, _Windows, _Windows]:
    """Return the image of each region, and its windows, with bounds of at most ``last_row`` and ``last_column``."""
    image, left, top, right, bottom = _regions(rois, scale)
    y = _Windows.of(top, bottom, rows, 0, last_row)
    return image, y, _Windows.of(left, right, columns, 0, last_column)


def ps_roi_pool(images: Tensor, rois: Tensor, spatial_scale: float, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Return the mean of each bin, which has channels of its own, and the number of that channel. An empty bin is 0.

    Bins never have the last row and column of an image, as in eager; in the gradient they do.
    """
    all_channels, height, width = images.shape[1:]
    channels = all_channels // (rows * columns)
    mapping = channel_mapping(rois.shape[0], channels, rows, columns)
    if is_empty(rois) or is_empty(images):
        return torch.zeros(mapping.shape, dtype=images.dtype), mapping
    image, y, x = _position_sensitive_windows(rois, spatial_scale, rows, columns, height - 1, width - 1)
    number = y.number.unsqueeze(2) * x.number.unsqueeze(1)

    def step(turn: Tensor, total: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        pixels, image, y0, y1, x0, x1, bins, height, width = rest
        down, right, there = _visit(turn, _Windows(y0, y1), _Windows(x0, x1))
        index = index_of_pixels(image.reshape(-1, 1, 1), down, right, height, width, bins)
        return (total + torch.where(there.unsqueeze(3), gather_rows(pixels, index), 0.0),)

    state = torch.zeros((rois.shape[0], rows, columns, channels), dtype=images.dtype)
    pixels = rows_of_pixels(images, rows * columns)
    invariants = (pixels, image, y.start, y.end, x.start, x.end, bin_numbers(rows, columns))
    (total,) = repeat_up_to(number, step, (state,), invariants, (height, width))
    return (total / number.clamp(min=1).to(total.dtype).unsqueeze(3)).permute(0, 3, 1, 2), mapping


def ps_roi_pool_backward(
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    rows: int,
    columns: int,
    images: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """Return the gradient of the images. A gradient that is not finite affects all pixels."""
    if is_empty(grad):
        return torch.zeros((images, channels, height, width), dtype=grad.dtype)
    image, y, x = _position_sensitive_windows(rois, spatial_scale, rows, columns, height, width)
    number = (y.number.unsqueeze(2) * x.number.unsqueeze(1)).clamp(min=1)
    tall, wide = (
        ((torch.arange(size) >= windows.start.unsqueeze(2)) & (torch.arange(size) < windows.end.unsqueeze(2))).to(
            grad.dtype
        )
        for windows, size in ((y, height), (x, width))
    )
    share = grad / number.to(grad.dtype).unsqueeze(1)
    member = one_hot_images(image, images, grad.dtype)
    return spread_by_channel(share, channel_mapping, channels, member, tall, wide)
