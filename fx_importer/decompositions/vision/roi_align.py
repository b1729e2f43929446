"""Decompositions of ``roi_align`` and ``ps_roi_align``, which average bilinear samples of each bin, and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.vision.regions import (
    bin_numbers,
    channel_mapping,
    gather_rows,
    index_of_pixels,
    one_hot_images,
    quotient,
    repeat_up_to,
    rows_of_pixels,
)

_MAX_UNROLLED = 4
"""The largest number of samples along an axis of a bin that are written out; more are computed in a loop."""


@dataclass(frozen=True)
class _Axis:
    """The bins of all regions along an axis, in pixels. Tensors are [boxes]."""

    start: Tensor
    length: Tensor
    """The length of a bin."""
    samples: Tensor
    """The number of samples in a bin: integers of the dtype of the coordinates, which may be negative."""
    bins: int
    size: int
    """The number of pixels of an image."""

    @classmethod
    def of(cls, low: Tensor, high: Tensor, bins: int, size: int, ratio: int, least: float | None) -> _Axis:
        """Return the axis for regions from ``low`` to ``high`` that are at least ``least`` long.

        A ``ratio`` that is not positive stands for a sample in each pixel.
        """
        extent = high - low
        extent = extent if least is None else extent.clamp(min=least)
        length = quotient(extent, float(bins))
        samples = torch.full_like(extent, ratio) if ratio > 0 else torch.ceil(length)
        return cls(low, length, samples, bins, size)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors, as a loop takes them."""
        return self.start, self.length, self.samples

    def with_tensors(self, tensors: Sequence[Tensor], size: Any) -> _Axis:
        """Return an axis of as many bins. ``size`` is a tensor of rank 0 if it is dynamic."""
        start, length, samples = tensors
        return _Axis(start, length, samples, self.bins, size)

    def places(self, sample: Tensor | float) -> Tensor:
        """Return the coordinates of a sample, a number or [boxes], of each bin: [boxes, bins]."""
        number = torch.arange(self.bins, dtype=self.start.dtype)
        inside = quotient((sample + 0.5) * self.length, self.samples)
        return (self.start.unsqueeze(1) + number * self.length.unsqueeze(1)) + inside.unsqueeze(1)


@dataclass(frozen=True)
class _Taps:
    """The two pixels along an axis that each sample reads, and their weights; tensors have the shape of the samples."""

    pixels: tuple[Tensor, Tensor]
    weights: tuple[Tensor, Tensor]
    inside: Tensor
    """Samples more than a pixel outside of the image are zero."""

    @classmethod
    def of(cls, position: Tensor, size: int) -> _Taps:
        """Return the taps of samples at ``position`` in an axis of ``size``."""
        inside = (position >= -1) & (position <= size)
        position = position.clamp(min=0)
        low = torch.floor(position).clamp(max=size - 1)
        rest = torch.where(low >= size - 1, 0.0, position - low)
        low = torch.where(inside, low, 0.0).to(torch.int64)
        high = (low + 1).clamp(max=size - 1)
        return cls((low, high), (1 - rest, rest), inside)


def _sampled(
    rows: Tensor, image: Tensor, y: _Axis, x: _Axis, i: Tensor | float, j: Tensor | float, bins: Tensor | None
):
    """Return sample ``i``, ``j`` of each bin: [boxes, y bins, x bins, channels]."""
    tall, wide = _Taps.of(y.places(i), y.size), _Taps.of(x.places(j), x.size)
    total = torch.zeros((), dtype=rows.dtype)
    for a, b in itertools.product((0, 1), repeat=2):
        down, right = tall.pixels[a].unsqueeze(2), wide.pixels[b].unsqueeze(1)
        index = index_of_pixels(image.reshape(-1, 1, 1), down, right, y.size, x.size, bins)
        weight = tall.weights[a].unsqueeze(2) * wide.weights[b].unsqueeze(1)
        total = total + weight.unsqueeze(3) * gather_rows(rows, index)
    inside = tall.inside.unsqueeze(2) & wide.inside.unsqueeze(1)
    return torch.where(inside.unsqueeze(3), total, 0.0)


def _sum_of_samples(rows: Tensor, image: Tensor, y: _Axis, x: _Axis, ratio: int, bins: Tensor | None) -> Tensor:
    """Return the sums of the samples of all bins: [boxes, y bins, x bins, channels]."""
    if 0 < ratio <= _MAX_UNROLLED:
        pairs = itertools.product(range(ratio), repeat=2)
        parts = (_sampled(rows, image, y, x, i, j, bins) for i, j in pairs)
        total = next(parts)
        for part in parts:
            total = total + part
        return total

    def step(turn: Tensor, total: Tensor, rows: Tensor, image: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        *numbers, height, width = rest[6:]
        tall, wide = y.with_tensors(rest[:3], height), x.with_tensors(rest[3:6], width)
        number = numbers[0] if numbers else None
        across = wide.samples.clamp(min=1).to(torch.int64)
        i, j = torch.div(turn, across, rounding_mode="floor"), torch.remainder(turn, across)
        part = _sampled(rows, image, tall, wide, i.to(rows.dtype), j.to(rows.dtype), number)
        there = turn < _number_of_samples(tall, wide)
        return (total + torch.where(there.reshape(-1, 1, 1, 1), part, 0.0),)

    shape = (image.shape[0], y.bins, x.bins, rows.shape[1])
    start = torch.zeros(shape, dtype=rows.dtype)
    numbers = () if bins is None else (bins,)
    invariants = (rows, image, *y.tensors, *x.tensors, *numbers)
    return repeat_up_to(_number_of_samples(y, x), step, (start,), invariants, (y.size, x.size))[0]


def _number_of_samples(y: _Axis, x: _Axis) -> Tensor:
    """Return the number of samples of the bins of each region."""
    return (y.samples.clamp(min=0) * x.samples.clamp(min=0)).to(torch.int64)


def _axes(rois: Tensor, scale: float, sizes: tuple[int, int, int, int], ratio: int, offset: float, least: float | None):
    """Return the image of each region, and its axes; ``sizes`` are height and width of the grid, and of the image."""
    rows, columns, height, width = sizes
    left, top, right, bottom = (rois[:, column] * scale - offset for column in range(1, 5))
    y = _Axis.of(top, bottom, rows, height, ratio, least)
    x = _Axis.of(left, right, columns, width, ratio, least)
    return rois[:, 0].to(torch.int64), y, x


def roi_align(
    images: Tensor, rois: Tensor, spatial_scale: float, rows: int, columns: int, sampling_ratio: int, aligned: bool
) -> Tensor:
    """Return the mean of bilinear samples in each bin of each region: [boxes, channels, rows, columns].

    Regions are [boxes, 5]: the image, left, top, right and bottom. With ``sampling_ratio`` -1, the number of samples
    depends on the size of the region.
    """
    channels, height, width = images.shape[1:]
    shape = (rois.shape[0], channels, rows, columns)
    if is_empty(rois) or is_empty(images):
        return torch.zeros(shape, dtype=images.dtype)
    sizes, (offset, least) = (rows, columns, height, width), _alignment(aligned)
    image, y, x = _axes(rois, spatial_scale, sizes, sampling_ratio, offset, least)
    total = _sum_of_samples(rows_of_pixels(images), image, y, x, sampling_ratio, None)
    number = (y.samples * x.samples).clamp(min=1)
    return (total / number.reshape(-1, 1, 1, 1)).permute(0, 3, 1, 2)


def _alignment(aligned: bool) -> tuple[float, float | None]:
    """Return by how much coordinates of boxes move, and how long regions are at least."""
    return (0.5, None) if aligned else (0.0, 1.0)


def ps_roi_align(
    images: Tensor, rois: Tensor, spatial_scale: float, rows: int, columns: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """Return the mean of bilinear samples in each bin, which has channels of its own, and the channels' numbers."""
    all_channels, height, width = images.shape[1:]
    channels = all_channels // (rows * columns)
    mapping = channel_mapping(rois.shape[0], channels, rows, columns)
    if is_empty(rois) or is_empty(images):
        return torch.zeros(mapping.shape, dtype=images.dtype), mapping
    image, y, x = _axes(rois, spatial_scale, (rows, columns, height, width), sampling_ratio, 0.5, None)
    pixels = rows_of_pixels(images, rows * columns)
    total = _sum_of_samples(pixels, image, y, x, sampling_ratio, bin_numbers(rows, columns))
    number = y.samples * x.samples
    return (total / number.reshape(-1, 1, 1, 1)).permute(0, 3, 1, 2), mapping


def _weights(axis: _Axis, ratio: int) -> Tensor:
    """Return how much each pixel adds to the sum of the samples of a bin along ``axis``: [boxes, bins, pixels]."""
    pixels = torch.arange(axis.size, dtype=torch.int64)

    def of_sample(axis: _Axis, sample: Tensor | float, pixels: Tensor) -> Tensor:
        taps = _Taps.of(axis.places(sample), axis.size)
        low, high = (
            torch.where(pixel.unsqueeze(2) == pixels, weight.unsqueeze(2), 0.0)
            for pixel, weight in zip(taps.pixels, taps.weights, strict=True)
        )
        return torch.where(taps.inside.unsqueeze(2), low + high, 0.0)

    if 0 < ratio <= _MAX_UNROLLED:
        return torch.stack([of_sample(axis, sample, pixels) for sample in range(ratio)]).sum(0)

    def step(turn: Tensor, total: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        inner = axis.with_tensors(rest[:3], rest[4])
        part = of_sample(inner, turn.to(total.dtype), rest[3])
        there = turn.to(total.dtype) < inner.samples
        return (total + torch.where(there.reshape(-1, 1, 1), part, 0.0),)

    start = torch.zeros((axis.start.shape[0], axis.bins, axis.size), dtype=axis.start.dtype)
    turns = axis.samples.clamp(min=0).to(torch.int64)
    return repeat_up_to(turns, step, (start,), (*axis.tensors, pixels), (axis.size,))[0]


def roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    rows: int,
    columns: int,
    images: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return the gradient of the images: two products with the weights of pixels.

    A gradient that is not finite affects all pixels of its image.
    """
    if is_empty(grad):
        return torch.zeros((images, channels, height, width), dtype=grad.dtype)
    sizes, (offset, least) = (rows, columns, height, width), _alignment(aligned)
    image, y, x = _axes(rois, spatial_scale, sizes, sampling_ratio, offset, least)
    number = (y.samples * x.samples).clamp(min=1)
    share = grad / number.reshape(-1, 1, 1, 1)
    wide = torch.matmul(share, _weights(x, sampling_ratio).unsqueeze(1))  # [boxes, channels, rows, width]
    tall = one_hot_images(image, images, grad.dtype).reshape(-1, images, 1, 1) * _weights(y, sampling_ratio).unsqueeze(
        1
    )
    tall = tall.permute(1, 3, 0, 2).reshape(images * height, -1)
    total = tall @ wide.permute(0, 2, 1, 3).reshape(-1, channels * width)
    return total.reshape(images, height, channels, width).permute(0, 2, 1, 3)


def ps_roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    rows: int,
    columns: int,
    sampling_ratio: int,
    images: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """Return the gradient of the images. A gradient that is not finite affects all pixels."""
    if is_empty(grad):
        return torch.zeros((images, channels, height, width), dtype=grad.dtype)
    image, y, x = _axes(rois, spatial_scale, (rows, columns, height, width), sampling_ratio, 0.5, None)
    number = y.samples * x.samples  # 0: nothing is added
    share = grad / torch.where(number == 0, 1.0, number).reshape(-1, 1, 1, 1)
    weights = _weights(y, sampling_ratio), _weights(x, sampling_ratio)
    member = one_hot_images(image, images, grad.dtype)
    return spread_by_channel(share, channel_mapping, channels, member, *weights)


def spread_by_channel(
    share: Tensor, mapping: Tensor, channels: int, member: Tensor, tall: Tensor, wide: Tensor
) -> Tensor:
    """Return images [images, channels, height, width] to which bins add their ``share``, with the weights of pixels.

    Args:
        share: [boxes, c, rows, columns].
        mapping: the channel of the images for each share, of the same shape.
        channels: the number of channels of the images.
        member: [boxes, images], 1 where a box is in the image.
        tall: [boxes, rows, height].
        wide: [boxes, columns, width].
    """
    images, height, width = member.shape[1], tall.shape[2], wide.shape[2]
    here = mapping.unsqueeze(2) == torch.arange(channels, dtype=mapping.dtype).reshape(-1, 1, 1)
    by_channel = torch.where(here, share.unsqueeze(2), 0.0).sum(1)  # [boxes, channels, rows, columns]
    values = member.reshape(-1, images, 1, 1, 1) * by_channel.unsqueeze(1)
    values = values.permute(1, 2, 0, 3, 4).reshape(images * channels, -1)
    pixels = tall.unsqueeze(2).unsqueeze(4) * wide.unsqueeze(1).unsqueeze(3)
    return (values @ pixels.reshape(-1, height * width)).reshape(images, channels, height, width)
