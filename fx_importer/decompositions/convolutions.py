"""Transposed convolutions as convolutions of inputs with zeros between their elements, and groups one by one.

Those of integers as sums of products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fx_importer.decompositions.table import Decomposition, decomposes

aten = torch.ops.aten

Sizes = Sequence[int]

_LARGEST_PRODUCT = 1 << 24
"""How many elements there may be before the sum, where a convolution is products and their sum."""


def _transposed_where(condition: Callable[[Sizes, Sizes, int], bool]) -> Decomposition:
    """A rule for the transposed convolutions whose dilation, output padding and groups are such."""

    @decomposes(aten.convolution.default)
    def rule(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        transposed: bool,
        output_padding: Sizes,
        groups: int,
    ) -> Any:
        static = all(isinstance(size, int) for size in (*x.shape[2:], *weight.shape))
        if not transposed or not static or not condition(dilation, output_padding, groups):
            return NotImplemented
        return _plain(x, weight, bias, stride, padding, dilation, output_padding, groups)

    return rule


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """Return a transposed convolution as one that is not."""
    axes = x.dim() - 2
    stride, padding, dilation, output_padding = (
        _of_axes(each, axes) for each in (stride, padding, dilation, output_padding)
    )
    widths: list[int] = []  # from the last axis on; less than nothing takes elements away
    for i in reversed(range(axes)):
        x = _spread(x, 2 + i, stride[i])
        before = dilation[i] * (weight.shape[2 + i] - 1) - padding[i]
        widths += [before, before + output_padding[i]]
    x = pad(x, widths)
    channels, each, *size = weight.shape
    weight = weight.reshape(groups, channels // groups, each, *size).transpose(1, 2)
    weight = weight.reshape(groups * each, channels // groups, *size).flip([2 + i for i in range(axes)])
    ones, zeros = [1] * axes, [0] * axes
    return aten.convolution.default(x, weight, bias, ones, zeros, dilation, False, zeros, groups)


def _of_axes(sizes: Sizes, axes: int) -> list[int]:
    return [*sizes] * (axes // len(sizes))


def _spread(x: Tensor, axis: int, step: int) -> Tensor:
    """Put ``step - 1`` zeros between the elements along ``axis``."""
    if step == 1:
        return x
    size = x.shape[axis]
    spread = pad(x.unsqueeze(-1), [0, step - 1]).movedim(-1, axis + 1).flatten(axis, axis + 1)
    return spread.narrow(axis, 0, (size - 1) * step + 1)


transposed_by_groups = _transposed_where(lambda dilation, _, groups: groups > 1 or any(each != 1 for each in dilation))
transposed_unevenly = _transposed_where(lambda _, output_padding, groups: len(set(output_padding)) > 1)


@decomposes(aten.convolution.default)
def of_integers(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Any:
    """Of integers of more than 8 bits: for each place in the kernel products, and their sum over the channels."""
    static = all(isinstance(size, int) for size in (*x.shape, *weight.shape))
    if not static or x.dtype not in (torch.int16, torch.int32, torch.int64):
        return NotImplemented
    if transposed:
        return _plain(x, weight, bias, stride, padding, dilation, output_padding, groups)
    axes = x.dim() - 2
    stride, padding, dilation = (_of_axes(each, axes) for each in (stride, padding, dilation))
    x = pad(x, [width for each in reversed(padding) for width in (each, each)])
    batch, kernel = x.shape[0], weight.shape[2:]
    sizes = [
        (size - spread * (length - 1) - 1) // step + 1
        for size, length, spread, step in zip(x.shape[2:], kernel, dilation, stride, strict=True)
    ]
    if batch * math.prod(weight.shape) * math.prod(sizes) > _LARGEST_PRODUCT:
        return NotImplemented
    total: Tensor | None = None
    for place in itertools.product(*map(range, kernel)):
        seen = x
        for axis, (at, spread, step, size) in enumerate(zip(place, dilation, stride, sizes, strict=True), 2):
            seen = aten.slice.Tensor(seen, axis, at * spread, at * spread + (size - 1) * step + 1, step)
        seen = seen.reshape(batch, groups, 1, weight.shape[1], math.prod(sizes))
        factor = weight[(..., *place)].reshape(1, groups, -1, weight.shape[1], 1)
        term = (seen * factor).sum(3, dtype=x.dtype)
        total = term if total is None else total + term
    assert total is not None
    result = total.reshape(batch, -1, *sizes)
    return result if bias is None else result + bias.reshape(-1, *[1] * axes)


@decomposes(aten.convolution.default)
def volumes_by_group(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    """Convolve the channels of each group by themselves, of three axes."""
    *sizes, transposed, output_padding, groups = geometry
    if transposed or groups == 1 or x.dim() != 5:
        return NotImplemented
    biases = [None] * groups if bias is None else bias.chunk(groups)
    parts = zip(x.chunk(groups, 1), weight.chunk(groups), biases, strict=True)
    return torch.cat([aten.convolution.default(*part, *sizes, False, output_padding, 1) for part in parts], 1)
