"""Operators on int8 and int16 tensors, ``fx_importer_integer.*``, with TOSA's arithmetic in eager PyTorch.

Results are ``clamp(rescale(accumulator) + zero_point, low, high)``, where ``rescale`` multiplies by ``multiplier * 2 **
-shift``. Zero points named ``zero_point`` are those of the operands. Paddings are top, bottom, left, right. ``offset``
is the bias less what the zero point adds to the sums of a channel: the bias of sums of ``x`` itself.

Output types without such operators decompose them to the functions here: products of int8 stay, as operators on
``*_sums``, which wrap as int32 does; the rest is integer arithmetic of ATen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer.quantization.scales import reciprocal, rescaled

integer: Any = torch.ops.fx_importer_integer
"""The namespace of the operators."""

_LIBRARY = torch.library.Library("fx_importer_integer", "DEF")
_OUT = "int out_zero_point, int low, int high, int bits=8"
ONE = f"int multiplier, int shift, {_OUT}"
"""The last parameters of operators that rescale by one scale."""
EACH = f"int[] multipliers, int[] shifts, {_OUT}"
"""The last parameters of operators that rescale by one scale, or by one for each channel."""


def defines(schema: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Define an operator of the namespace with the parameters ``schema`` by a function of its name."""

    def define(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = _LIBRARY.define(f"{function.__name__}({schema}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return function

    return define


@defines("Tensor x")
def to_signed(x: Tensor) -> Tensor:
    """Return the uint8 ``x`` less 128, as int8."""
    return (x.to(torch.int16) - 128).to(torch.int8)


@defines("Tensor x")
def to_unsigned(x: Tensor) -> Tensor:
    """Return the int8 ``x`` plus 128, as uint8."""
    return (x.to(torch.int16) + 128).to(torch.uint8)


@defines(f"Tensor x, int zero_point, {ONE}")
def rescale(x: Tensor, zero_point: int, *out: int) -> Tensor:
    """Return ``x`` with another scale and zero point."""
    return result_of(centered(x, zero_point), *out)


@defines(f"str kind, Tensor a, Tensor b, int[] zero_points, int[] multipliers, int[] shifts, {ONE}")
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
        rescaled(centered(*each[:2]), *each[2:]) for each in zip((a, b), zero_points, multipliers, shifts, strict=True)
    ]
    return result_of(getattr(torch, kind)(*parts), *out)


@defines(
    "Tensor x, Tensor weight, Tensor bias, Tensor offset, int[] stride, int[] padding, int[] dilation, int groups, "
    f"int zero_point, {EACH}"
)
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    offset: Tensor,
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
    padded = padded_by(x, padding, zero_point) if any(padding) else x
    sums = integer.conv2d_sums(padded, weight, stride, dilation, groups) + offset.reshape(-1, 1, 1)
    return by_channel(sums, (-1, 1, 1), multipliers, shifts, *out)


@defines("Tensor x, Tensor weight, int[] stride, int[] dilation, int groups")
def conv2d_sums(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int) -> Tensor:
    """Return the convolution of int8 tensors as int32, or of int16 as int64. Sums in float64 are exact."""
    sums = F.conv2d(x.double(), weight.double(), None, stride, 0, dilation, groups).long()
    return sums if x.dtype is torch.int16 else sums.int()


@defines(f"Tensor x, Tensor weight, Tensor bias, Tensor offset, int zero_point, {EACH}")
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    offset: Tensor,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return ``x[..., K]`` times ``weight[N, K]`` transposed, with an int32 bias."""
    sums = integer.linear_sums(x.reshape(-1, x.shape[-1]), weight) + offset
    return by_channel(sums, (-1,), multipliers, shifts, *out).reshape([*x.shape[:-1], weight.shape[0]])


@defines("Tensor x, Tensor weight")
def linear_sums(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x[M, K]`` times ``weight[N, K]`` transposed, of int8, as int32, or of int16, as int64."""
    sums = F.linear(x.double(), weight.double()).long()
    return sums if x.dtype is torch.int16 else sums.int()


@defines(f"Tensor a, Tensor b, int[] zero_points, {ONE}")
def matmul(a: Tensor, b: Tensor, zero_points: Sequence[int], *out: int) -> Tensor:
    """Return the products of matrices ``a[..., M, K]`` and ``b[..., K, N]``, of equal leading axes."""
    left, right = (x.reshape(-1, *x.shape[-2:]) for x in (a, b))
    of_a, of_b = zero_points
    sums = integer.matmul_sums(left, right)
    if of_a:
        sums = sums - of_a * right.to(torch.int32).sum(1, keepdim=True, dtype=torch.int32)
    if of_b:
        sums = sums - of_b * left.to(torch.int32).sum(2, keepdim=True, dtype=torch.int32)
    return result_of(sums + of_a * of_b * a.shape[-1], *out).reshape([*a.shape[:-1], b.shape[-1]])


@defines("Tensor a, Tensor b")
def matmul_sums(a: Tensor, b: Tensor) -> Tensor:
    """Return the products of matrices ``a[B, M, K]`` and ``b[B, K, N]``, of int8, as int32."""
    sums = torch.matmul(a.double(), b.double()).long()
    return sums if a.dtype is torch.int16 else sums.int()


@defines(f"Tensor x, int[] axes, bool keepdim, int zero_point, {ONE}")
def sum(x: Tensor, axes: list[int], keepdim: bool, zero_point: int, *out: int) -> Tensor:
    """Return the sums of ``x`` over ``axes``; a mean, if the scale divides by their sizes."""
    return result_of(centered(x, zero_point).sum(axes, keepdim), *out)


@defines("Tensor x, int[] kernel, int[] stride, int[] padding")
def max_pool2d(x: Tensor, kernel: list[int], stride: list[int], padding: Sequence[int]) -> Tensor:
    """Return the largest elements of windows of ``x[N, C, H, W]``."""
    padded = padded_by(x, padding, torch.iinfo(x.dtype).min) if any(padding) else x
    for axis, size, step in zip((2, 3), kernel, stride, strict=True):
        last = (padded.shape[axis] - size) // step * step + 1
        padded = functools.reduce(torch.maximum, (padded[_along(axis, i, i + last, step)] for i in range(size)))
    return padded.clone()


@defines("Tensor x, int[] kernel, int[] stride, int[] padding, int zero_point")
def avg_pool2d(x: Tensor, kernel: list[int], stride: list[int], padding: Sequence[int], zero_point: int) -> Tensor:
    """Return the means of the elements in windows of ``x[N, C, H, W]``, without those of the padding."""
    sizes, channels = x.shape[2:], x.shape[1]
    padded = padded_by(x, padding, zero_point) if any(padding) else x
    ones = torch.ones([channels, 1, *kernel], dtype=torch.int8, device=x.device)
    sums = integer.conv2d_sums(padded, ones, stride, [1, 1], channels) - zero_point * kernel[0] * kernel[1]
    if not any(padding):
        return result_of(sums, *reciprocal(kernel[0] * kernel[1]), zero_point, -128, 127)
    rows, columns = (
        [min(i * step + window - before, size) - max(i * step - before, 0) for i in range(count)]
        for size, window, step, before, count in zip(sizes, kernel, stride, padding[::2], sums.shape[2:], strict=True)
    )
    scales = zip(*(reciprocal(max(high * wide, 1)) for high in rows for wide in columns), strict=True)
    multiplier, shift = (torch.tensor(each, device=x.device).reshape(len(rows), len(columns)) for each in scales)
    return result_of(sums, multiplier, shift, zero_point, -128, 127)


@defines("Tensor x, Tensor entries")
def table(x: Tensor, entries: Tensor) -> Tensor:
    """Return ``entries[x + 128]``, of 256 entries."""
    return entries[x.to(torch.int64) + 128]


@defines(f"Tensor x, Tensor high, Tensor low, Tensor[] reciprocals, Tensor? mask, int axis, {ONE}")
def softmax(
    x: Tensor,
    high: Tensor,
    low: Tensor,
    reciprocals: Sequence[Tensor],
    mask: Tensor | None,
    axis: int,
    *out: int,
) -> Tensor:
    """Return powers of ``x`` less its largest element, over their sum along ``axis``; the scale is that of 2⁻¹⁵.

    ``high`` and ``low`` are tables of the bytes of a power of 15 bits, by the difference plus 255; ``low`` is less 128.
    ``reciprocals`` are those of `reciprocal_table`. Elements where ``mask`` is false have the power zero; the result is
    zero where all have.
    """
    if mask is not None:
        x = torch.where(mask, x, -128)
    place = x.to(torch.int32) - x.amax(axis, keepdim=True).to(torch.int32) + 255
    return result_of(quotients(looked_up(place, high, low), reciprocals, mask, axis), *out)


def looked_up(place: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """Return values of 15 bits, as int64, of tables of their bytes; ``low`` is less 128."""
    return high[place].to(torch.int64) * 256 + low[place] + 128


def quotients(powers: Tensor, reciprocals: Sequence[Tensor], mask: Tensor | None, axis: int) -> Tensor:
    """Return ``powers`` of 15 bits over their sum along ``axis``, with 15 bits.

    The sum is normalized to 31 bits; its reciprocal comes from a table of 15 bits and a step of Newton's method.
    """
    if mask is not None:
        powers = torch.where(mask, powers, 0)
    mantissa = powers.sum(axis, keepdim=True).clamp(min=1)
    zeros = torch.zeros_like(mantissa)
    for bits in (16, 8, 4, 2, 1):
        step = (mantissa < 2 ** (31 - bits)) * bits
        mantissa, zeros = mantissa << step, zeros + step
    guess = looked_up(mantissa >> 23, *reciprocals)
    root = rescaled(guess * (2**30 - rescaled(mantissa * guess, 1, 16)), 1, 14)
    return (((rescaled(powers * root, 1, 15) * 2) >> (30 - zeros)) + 1) >> 1


def reciprocal_table() -> list[Tensor]:
    """Return the bytes of reciprocals with 14 fractional bits of ``(i + 0.5) / 256``, for i in 128..255."""
    found = (256 / (torch.arange(256).clamp(min=128).double() + 0.5)).mul(2**14).round().long()
    return bytes_of(found)


def bytes_of(values: Tensor) -> list[Tensor]:
    """Return the high and the low byte of ``values`` of 15 bits, the low one less 128."""
    return [(values >> 8).to(torch.int8), ((values & 255) - 128).to(torch.int8)]


def centered(x: Tensor, zero_point: int) -> Tensor:
    """Return ``x`` less its zero point, as int64."""
    return x.to(torch.int64) - zero_point


def padded_by(x: Tensor, padding: Sequence[int], value: float = 0.0) -> Tensor:
    """Return ``x[..., H, W]`` with ``value`` at its sides."""
    top, bottom, left, right = padding
    return F.pad(x, (left, right, top, bottom), value=value)


def _along(axis: int, start: int, stop: int, step: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop, step))


def by_channel(
    sums: Tensor, shape: tuple[int, ...], multipliers: Sequence[int], shifts: Sequence[int], *out: int
) -> Tensor:
    """Return a result with one scale, or with a scale for each channel; scales have ``shape`` to broadcast."""
    if len(multipliers) == 1:
        return result_of(sums, multipliers[0], shifts[0], *out)
    multiplier, shift = (
        torch.tensor(each, dtype=torch.int64, device=sums.device).reshape(shape) for each in (multipliers, shifts)
    )
    return result_of(sums, multiplier, shift, *out)


def result_of(
    sums: Tensor, multiplier: Tensor | int, shift: Tensor | int, zero_point: int, low: int, high: int, bits: int = 8
) -> Tensor:
    """Return ``sums`` rescaled to int8, or to int16 with ``bits`` of 16; with 32, ``sums`` as they are."""
    if bits == 32:
        return sums
    levels = (rescaled(sums, multiplier, shift) + zero_point).clamp(low, high)
    return levels.to(torch.int8 if bits == 8 else torch.int16)
