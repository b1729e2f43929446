"""Decompositions of convolutions: transposed ones by interior padding, groups one by one, volumes, integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fx_importer.decompositions.engine.static_shapes import are_static, is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.interior_padding import pad_interior, per_axis
from fx_importer.decompositions.indexing.pairwise_masks import fits
from fx_importer.fx_graph.operators import aten

Sizes = Sequence[int]

_MANY_GROUPS = 16
"""The C++ lowering to TOSA takes up to some tens of groups."""


@dataclass(frozen=True)
class _ConvolutionGeometry:
    """The non-tensor arguments of a convolution, in the operator's order."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    output_padding: Sizes
    groups: int

    def per_axis(self, axes: int) -> tuple[list[int], ...]:
        """Return stride, padding, dilation and output padding, each with a value per axis."""
        stride, padding, dilation, output_padding = self.stride, self.padding, self.dilation, self.output_padding
        return tuple(per_axis(setting, axes) for setting in (stride, padding, dilation, output_padding))


def _transposed_where(condition: Callable[[_ConvolutionGeometry, Tensor, Tensor], bool]) -> Decomposition:
    """Return a rule for transposed convolutions with a static kernel that fulfill ``condition``.

    It takes the geometry, the input and the weight.
    """

    @decomposes(aten.convolution.default)
    def rule(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
        windows = _ConvolutionGeometry(*geometry)
        static = all(isinstance(size, int) for size in weight.shape)
        return (
            _as_forward_convolution(x, weight, bias, windows)
            if windows.transposed and static and condition(windows, x, weight)
            else NotImplemented
        )

    return rule


def _as_forward_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: _ConvolutionGeometry) -> Tensor:
    """Return a transposed convolution as a forward convolution of the input with interior padding."""
    axes, groups = x.dim() - 2, geometry.groups
    stride, padding, dilation, output_padding = geometry.per_axis(axes)
    widths: list[int] = []  # from the last axis on; negative widths crop
    for i in reversed(range(axes)):
        x = pad_interior(x, 2 + i, stride[i])
        before = dilation[i] * (weight.shape[2 + i] - 1) - padding[i]
        widths += [before, before + output_padding[i]]
    x = pad(x, widths)
    channels, per_group, *size = weight.shape
    result = [x.shape[2 + i] - dilation[i] * (size[i] - 1) for i in range(axes)]
    if 0 in [size for size in result if isinstance(size, int)]:  # eager gives it, but no forward convolution
        return x.new_zeros((x.shape[0], groups * per_group, *result))
    weight = weight.reshape(groups, channels // groups, per_group, *size).transpose(1, 2)
    weight = weight.reshape(groups * per_group, channels // groups, *size).flip([2 + i for i in range(axes)])
    ones, zeros = [1] * axes, [0] * axes
    return aten.convolution.default(x, weight, bias, ones, zeros, dilation, False, zeros, groups)


transposed_grouped_or_dilated = _transposed_where(
    lambda geometry, *_: geometry.groups > 1 or any(dilation != 1 for dilation in geometry.dilation)
)
transposed_volumes_of_dynamic_size = _transposed_where(lambda _, x, __: x.dim() == 5 and not are_static(*x.shape[2:]))
transposed_volumes_that_crop = _transposed_where(
    lambda geometry, x, weight: (
        x.dim() == 5
        and any(width >= size for width, size in zip(geometry.per_axis(3)[1], weight.shape[2:], strict=True))
    )
)
transposed_groups = _transposed_where(lambda geometry, *_: geometry.groups > 1)
transposed_with_uneven_output_padding = _transposed_where(lambda geometry, *_: len(set(geometry.output_padding)) > 1)


@decomposes(aten.convolution.default)
def integer_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    """Convolve integers that TOSA does not: sum over channels and kernel positions of elementwise products."""
    if x.dtype in (torch.uint8, torch.int8):
        wide = (None if tensor is None else tensor.to(torch.int32) for tensor in (x, weight, bias))
        result = aten.convolution(*wide, *geometry)
        return result.to(x.dtype)  # the low bits of a sum depend on the low bits of its terms only
    if not is_static(weight) or x.dtype not in (torch.int16, torch.int32, torch.int64):
        return NotImplemented
    windows = _ConvolutionGeometry(*geometry)
    if windows.transposed:
        return _as_forward_convolution(x, weight, bias, windows)
    axes = x.dim() - 2
    stride, padding, dilation, _ = windows.per_axis(axes)
    x = pad(x, [width for both in reversed(padding) for width in (both, both)])
    batch, kernel = x.shape[0], weight.shape[2:]
    sizes = [
        (size - apart * (length - 1) - 1) // step + 1
        for size, length, apart, step in zip(x.shape[2:], kernel, dilation, stride, strict=True)
    ]
    if not fits(batch, *weight.shape, *sizes):
        return NotImplemented
    total: Tensor | None = None
    for offsets in itertools.product(*map(range, kernel)):
        seen = x
        for axis, (at, apart, step, size) in enumerate(zip(offsets, dilation, stride, sizes, strict=True), 2):
            seen = aten.slice.Tensor(seen, axis, at * apart, at * apart + (size - 1) * step + 1, step)
        seen = seen.reshape(batch, windows.groups, 1, weight.shape[1], math.prod(sizes))
        factor = weight[(..., *offsets)].reshape(1, windows.groups, -1, weight.shape[1], 1)
        term = (seen * factor).sum(3, dtype=x.dtype)
        total = term if total is None else total + term
    assert total is not None
    result = total.reshape(batch, -1, *sizes)
    return result if bias is None else result + bias.reshape(-1, *[1] * axes)


@decomposes(aten.conv_tbc.default)
def conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolve [time, batch, channels] with [kernel, channels, results]: a 1-D convolution of other axes."""
    result = aten.convolution(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, [1], [pad], [1], False, [0], 1)
    return result.permute(2, 0, 1)


@decomposes(aten.convolution.default)
def conv1d_of_dynamic_shape(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    """Convolve [N, C, W] as [N, C, 1, W], if a size is dynamic."""
    if is_static(x, weight) or x.dim() != 3:
        return NotImplemented
    stride, padding, dilation, transposed, output_padding, groups = geometry
    axes = [[1, *stride], [0, *padding], [1, *dilation], transposed, [0, *output_padding], groups]
    return aten.convolution(x.unsqueeze(2), weight.unsqueeze(2), bias, *axes).squeeze(2)


@decomposes(aten.convolution.default)
def images_by_many_groups(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    """Convolve each of many groups of several channels separately, except for volumes."""
    inner = weight.shape[1]
    if x.dim() == 5 or geometry[-1] <= _MANY_GROUPS or (isinstance(inner, int) and inner == 1):
        return NotImplemented
    return _by_groups(x, weight, bias, *geometry)


@decomposes(aten.convolution.default)
def depthwise_volumes_by_planes(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    """Convolve the planes of volumes as images: of one channel a group, which is one operation of TOSA."""
    return volumes_by_planes.rule(x, weight, bias, *geometry) if weight.shape[1] == 1 else NotImplemented


@decomposes(aten.convolution.default)
def volumes_by_planes(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    """Convolve the planes of volumes as images, for each plane of the kernel, where that is less than the groups."""
    windows = _ConvolutionGeometry(*geometry)
    if x.dim() != 5 or windows.transposed or x.dtype not in (torch.float32, torch.float64):
        return NotImplemented  # half precision would be rounded for each plane
    planes = weight.shape[2]
    if not is_static(x, weight) or windows.groups <= planes:
        return NotImplemented
    stride, padding, dilation, _ = windows.per_axis(3)
    sequence = pad(x.transpose(1, 2), [0] * 6 + [padding[0]] * 2)
    depth = (sequence.shape[1] - dilation[0] * (planes - 1) - 1) // stride[0] + 1
    total: Tensor | None = None
    for plane in range(planes):
        at = plane * dilation[0]
        seen = aten.slice.Tensor(sequence, 1, at, at + (depth - 1) * stride[0] + 1, stride[0]).flatten(0, 1)
        operands = seen, weight[:, :, plane], bias if plane == 0 else None
        term = aten.convolution(*operands, stride[1:], padding[1:], dilation[1:], False, [0, 0], windows.groups)
        total = term if total is None else total + term
    assert total is not None
    return total.unflatten(0, (x.shape[0], depth)).transpose(1, 2)


@decomposes(aten.convolution.default)
def volumes_by_groups(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    """Convolve each group of volumes separately."""
    return _by_groups(x, weight, bias, *geometry) if x.dim() == 5 else NotImplemented


def _by_groups(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    *sizes, transposed, output_padding, groups = geometry
    if transposed or groups == 1:
        return NotImplemented
    inner, outer = weight.shape[1], weight.shape[0] // groups

    def convolve(group: int) -> Tensor:  # of slices, which take dynamic other axes
        part = None if bias is None else bias.narrow(0, outer * group, outer)
        operands = x.narrow(1, inner * group, inner), weight.narrow(0, outer * group, outer), part
        return aten.convolution.default(*operands, *sizes, False, output_padding, 1)

    return torch.cat([convolve(group) for group in range(groups)], 1)
