"""Operators on int8 tensors, ``fx_importer_integer.*``, with TOSA's arithmetic in eager PyTorch.

Results are ``clamp(rescale(accumulator) + zero_point, low, high)``, where ``rescale`` multiplies by ``multiplier * 2 **
-shift``. Zero points named ``zero_point`` are those of the operands. Paddings are top, bottom, left, right. Sums are
computed in float64, which is exact: folding bounds them by 2³¹.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer.quantization.scales import reciprocal, rescaled

integer: Any = torch.ops.fx_importer_integer
"""The namespace of the operators."""

_LIBRARY = torch.library.Library("fx_importer_integer", "DEF")
_OUT = "int out_zero_point, int low, int high"
_ONE = f"int multiplier, int shift, {_OUT}"
_EACH = f"int[] multipliers, int[] shifts, {_OUT}"


def _defines(schema: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    def define(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = _LIBRARY.define(f"{function.__name__}({schema}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return function

    return define


@_defines(f"Tensor x, int zero_point, {_ONE}")
def rescale(x: Tensor, zero_point: int, *out: int) -> Tensor:
    """Return ``x`` with another scale and zero point."""
    return _result(_centered(x, zero_point), *out)


@_defines(f"str kind, Tensor a, Tensor b, int[] zero_points, int[] multipliers, int[] shifts, {_ONE}")
def binary(
    kind: str,
    a: Tensor,
    b: Tensor,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return ``a`` and ``b``, each rescaled to 32 bits, combined by ``kind``: add, sub or mul."""
    parts = [
        rescaled(_centered(*each[:2]), *each[2:]) for each in zip((a, b), zero_points, multipliers, shifts, strict=True)
    ]
    return _result(getattr(torch, kind)(*parts), *out)


@_defines(
    "Tensor x, Tensor weight, Tensor bias, int[] stride, int[] padding, int[] dilation, int groups, int zero_point, "
    + _EACH
)
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: list[int],
    padding: Sequence[int],
    dilation: list[int],
    groups: int,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return the convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]`` and an int32 bias."""
    padded = _padded(_centered(x, zero_point).double(), padding)
    sums = F.conv2d(padded, weight.double(), bias.double(), stride, 0, dilation, groups)
    return _by_channel(sums.movedim(1, -1), multipliers, shifts, *out).movedim(-1, 1).contiguous()


@_defines(f"Tensor x, Tensor weight, Tensor bias, int zero_point, {_EACH}")
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return ``x[..., K]`` times ``weight[N, K]`` transposed, with an int32 bias."""
    sums = F.linear(_centered(x, zero_point).double(), weight.double(), bias.double())
    return _by_channel(sums, multipliers, shifts, *out)


@_defines(f"Tensor a, Tensor b, int[] zero_points, {_ONE}")
def matmul(a: Tensor, b: Tensor, zero_points: Sequence[int], *out: int) -> Tensor:
    """Return the products of matrices ``a[..., M, K]`` and ``b[..., K, N]``, of equal leading axes."""
    x, y = (_centered(*each).double() for each in zip((a, b), zero_points, strict=True))
    return _result(torch.matmul(x, y), *out)


@_defines(f"Tensor x, int[] axes, bool keepdim, int zero_point, {_ONE}")
def sum(x: Tensor, axes: list[int], keepdim: bool, zero_point: int, *out: int) -> Tensor:
    """Return the sums of ``x`` over ``axes``; a mean, if the scale divides by their sizes."""
    return _result(_centered(x, zero_point).sum(axes, keepdim), *out)


@_defines("Tensor x, int[] kernel, int[] stride, int[] padding")
def max_pool2d(x: Tensor, kernel: list[int], stride: list[int], padding: Sequence[int]) -> Tensor:
    """Return the largest elements of windows of ``x[N, C, H, W]``."""
    return F.max_pool2d(_padded(x.float(), padding, -128.0), kernel, stride).to(torch.int8)


@_defines("Tensor x, int[] kernel, int[] stride, int[] padding, int zero_point")
def avg_pool2d(x: Tensor, kernel: list[int], stride: list[int], padding: Sequence[int], zero_point: int) -> Tensor:
    """Return the means of the elements in windows of ``x[N, C, H, W]``, without those of the padding."""
    centered = _centered(x, zero_point).double()
    sums, counts = (
        F.avg_pool2d(_padded(each, padding), kernel, stride, divisor_override=1).to(torch.int64)
        for each in (centered, torch.ones_like(centered[:1, :1]))
    )
    scales = [reciprocal(max(count, 1)) for count in range(kernel[0] * kernel[1] + 1)]
    multipliers, shifts = (torch.tensor(each, device=x.device)[counts] for each in zip(*scales, strict=True))
    return (rescaled(sums, multipliers, shifts) + zero_point).clamp(-128, 127).to(torch.int8)


@_defines("Tensor x, Tensor entries")
def table(x: Tensor, entries: Tensor) -> Tensor:
    """Return ``entries[x + 128]``, of 256 entries."""
    return entries[x.to(torch.int64) + 128]


def _centered(x: Tensor, zero_point: int) -> Tensor:
    return x.to(torch.int64) - zero_point


def _padded(x: Tensor, padding: Sequence[int], value: float = 0.0) -> Tensor:
    top, bottom, left, right = padding
    return F.pad(x, (left, right, top, bottom), value=value)


def _by_channel(sums: Tensor, multipliers: Sequence[int], shifts: Sequence[int], *out: int) -> Tensor:
    """Return a result with a scale for each element of the last axis, or one for all."""
    multiplier, shift = (torch.tensor(each, dtype=torch.int64, device=sums.device) for each in (multipliers, shifts))
    return _result(sums, multiplier, shift, *out)


def _result(
    sums: Tensor, multiplier: Tensor | int, shift: Tensor | int, zero_point: int, low: int, high: int
) -> Tensor:
    return (rescaled(sums, multiplier, shift) + zero_point).clamp(low, high).to(torch.int8)
