"""Decompositions of ``deform_conv2d``, a convolution whose kernel samples at learned offsets, and its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fx_importer.decompositions.vision.regions import gather_rows
from fx_importer.fx_graph.operators import aten


@dataclass(frozen=True)
class _Shape:
    """The sizes of a call, and the geometry of its kernel."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    offset_groups: int

    @property
    def taps(self) -> int:
        """The number of elements of the kernel."""
        return self.kernel[0] * self.kernel[1]

    def places(self, offset: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and x of each sample, [n, offset groups, taps, height * width of the output]."""
        n, _, height, width = offset.shape
        pairs = offset.reshape(n, self.offset_groups, self.taps, 2, height, width)
        result: list[Tensor] = []
        for axis, size in enumerate((height, width)):
            tap = torch.arange(self.kernel[axis], dtype=offset.dtype) * self.dilation[axis]
            out = torch.arange(size, dtype=offset.dtype) * self.stride[axis] - self.padding[axis]
            tap = tap.reshape(-1, 1).expand(self.kernel) if axis == 0 else tap.expand(self.kernel)
            out = out.reshape(-1, 1) if axis == 0 else out
            position = tap.reshape(self.taps, 1, 1) + out + pairs[:, :, :, axis]
            result.append(position.reshape(n, self.offset_groups, self.taps, height * width))
        return result[0], result[1]


@dataclass(frozen=True)
class _Corner:
    """One of the four pixels that each sample reads. Tensors are of the shape of the samples."""

    index: Tensor
    """Rows of pixels, [n, height, width, offset groups]."""
    inside: Tensor
    weights: tuple[Tensor, Tensor]
    """Along y and x."""
    slopes: tuple[float, float]
    """Derivatives of the weights with respect to y and x."""


def _corners(y: Tensor, x: Tensor, sizes: tuple[int, int]) -> list[_Corner]:
    """Return the corners of samples at ``y`` and ``x``, [n, offset groups, …], in images of ``sizes``."""
    n, groups = y.shape[:2]
    lows = [torch.floor(position) for position in (y, x)]
    rests = [position - low for position, low in zip((y, x), lows, strict=True)]
    corners: list[_Corner] = []
    start = torch.arange(n * groups).reshape(n, groups, 1, 1)
    for step in itertools.product((0, 1), repeat=2):
        at = [low + offset for low, offset in zip(lows, step, strict=True)]
        inside = (at[0] >= 0) & (at[0] <= sizes[0] - 1) & (at[1] >= 0) & (at[1] <= sizes[1] - 1)
        down, right = (corner.clamp(0, size - 1).to(torch.int64) for corner, size in zip(at, sizes, strict=True))
        weights = [rest if offset else 1 - rest for rest, offset in zip(rests, step, strict=True)]
        slopes = [1.0 if offset else -1.0 for offset in step]
        index = (start * sizes[0] + down) * sizes[1] + right
        corners.append(_Corner(index, inside, (weights[0], weights[1]), (slopes[0], slopes[1])))
    return corners


def _rows(images: Tensor, groups: int) -> Tensor:
    """Return the rows of channels of a group, in the order image, group, y, x."""
    n, channels, height, width = images.shape
    by_group = images.reshape(n, groups, channels // groups, height, width)
    return by_group.permute(0, 1, 3, 4, 2).reshape(n * groups * height * width, channels // groups)


def _read(rows: Tensor, corner: _Corner) -> Tensor:
    """Return the pixels of ``corner``, [n, offset groups, taps, samples, channels]; those outside are zero."""
    return torch.where(corner.inside.unsqueeze(-1), gather_rows(rows, corner.index), 0.0)


def _sampled(rows: Tensor, corners: Sequence[_Corner]) -> Tensor:
    """Return the samples, [n, offset groups, taps, samples, channels]."""
    parts = [(corner.weights[0] * corner.weights[1]).unsqueeze(-1) * _read(rows, corner) for corner in corners]
    return parts[0] + parts[1] + parts[2] + parts[3]


def _columns(samples: Tensor, shape: _Shape) -> Tensor:
    """Return ``samples`` as operands of products: [n, groups, channels of a group * taps, samples]."""
    n, offset_groups, taps, number, channels = samples.shape
    by_channel = samples.permute(0, 1, 4, 2, 3)
    return by_channel.reshape(n, shape.groups, offset_groups * channels * taps // shape.groups, number)


def _weights_by_mask(mask: Tensor, shape: _Shape) -> Tensor:
    """Return the mask of each sample, [n, offset groups, taps, samples, 1]."""
    n, _, height, width = mask.shape
    return mask.reshape(n, shape.offset_groups, shape.taps, height * width, 1)


def _matrices(weight: Tensor, groups: int) -> Tensor:
    """Return the matrix of each group, [groups, output channels, input channels * taps]."""
    return weight.reshape(groups, weight.shape[0] // groups, -1)


def deform_conv2d(
    images: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Return the product of the kernel and bilinear samples at its elements' positions plus ``offset``.

    Samples outside of the image are zero; each is multiplied with ``mask``, if it is used. ``offset`` is
    [n, offset groups * taps * 2, height, width], ``mask`` the same without the pairs of y and x.
    """
    height, width = offset.shape[2:]
    kernel = (weight.shape[2], weight.shape[3])
    shape = _Shape(kernel, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups, offset_groups)
    corners = _corners(*shape.places(offset), (images.shape[2], images.shape[3]))
    samples = _sampled(_rows(images, offset_groups), corners)
    samples = samples * _weights_by_mask(mask, shape) if use_mask else samples
    product = torch.matmul(_matrices(weight, groups), _columns(samples, shape))
    return product.reshape(images.shape[0], weight.shape[0], height, width) + bias.reshape(-1, 1, 1)


def deform_conv2d_backward(
    grad: Tensor,
    images: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of images, weight, offset, mask and bias; zeros for a mask that is not used."""
    n, channels, height, width = images.shape
    part = channels // offset_groups
    kernel = (weight.shape[2], weight.shape[3])
    shape = _Shape(kernel, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups, offset_groups)
    number = offset.shape[2] * offset.shape[3]
    corners = _corners(*shape.places(offset), (height, width))
    rows = _rows(images, offset_groups)
    samples = _sampled(rows, corners)
    weights = _weights_by_mask(mask, shape) if use_mask else None
    used = samples if weights is None else samples * weights
    by_group = grad.reshape(n, groups, weight.shape[0] // groups, number)
    of_weight = torch.matmul(by_group, _columns(used, shape).transpose(2, 3)).sum(0).reshape(weight.shape)
    columns = torch.matmul(_matrices(weight, groups).transpose(1, 2), by_group)
    # [n, offset groups, taps, samples, channels]
    of_used = columns.reshape(n, offset_groups, part, shape.taps, number).permute(0, 1, 3, 4, 2)
    of_mask = (of_used * samples).sum(-1).reshape(mask.shape) if use_mask else torch.zeros_like(mask)
    of_samples = of_used if weights is None else of_used * weights
    of_rows = torch.zeros_like(rows)
    of_places = [torch.zeros((), dtype=grad.dtype), torch.zeros((), dtype=grad.dtype)]
    for corner in corners:
        share = of_samples * (corner.weights[0] * corner.weights[1]).unsqueeze(-1)
        share = torch.where(corner.inside.unsqueeze(-1), share, 0.0)
        of_rows = aten.index_put(of_rows, [corner.index.reshape(-1)], share.reshape(-1, rows.shape[1]), True)
        read = (of_samples * _read(rows, corner)).sum(-1)
        of_places[0] = of_places[0] + read * corner.weights[1] * corner.slopes[0]
        of_places[1] = of_places[1] + read * corner.weights[0] * corner.slopes[1]
    of_images = of_rows.reshape(n, offset_groups, height, width, part).permute(0, 1, 4, 2, 3).reshape(images.shape)
    of_offset = torch.stack(of_places, 3).reshape(offset.shape)
    return of_images, of_weight, of_offset, of_mask, grad.sum((0, 2, 3)).to(bias.dtype)
