"""Operators on int8 tensors of normalization, resizes and transposed convolutions: see `int8`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_importer.quantization.operators.int8 import (
    EACH,
    ONE,
    by_channel,
    bytes_of,
    centered,
    defines,
    integer,
    looked_up,
    padded_by,
    result_of,
)
from fx_importer.quantization.scales import rescaled

ROOT_BITS = 14.5
"""Fractional bits of a normalized element; `normalize`."""


@defines(
    "Tensor x, Tensor high, Tensor low, Tensor gain, Tensor offset, int[] axes, bool centers, int zero_point, "
    f"int fraction, int mean_multiplier, int mean_shift, int halvings, int eps, int gain_shift, {ONE}"
)
def normalize(
    x: Tensor,
    high: Tensor,
    low: Tensor,
    gain: Tensor,
    offset: Tensor,
    axes: list[int],
    centers: bool,
    zero_point: int,
    fraction: int,
    mean_multiplier: int,
    mean_shift: int,
    halvings: int,
    eps: int,
    gain_shift: int,
    *out: int,
) -> Tensor:
    """Return ``x`` over the root of the mean of its squares along ``axes``, times ``gain``, plus ``offset``.

    With ``centers``, ``x`` is less its mean first. Differences have ``fraction`` more bits, 16 in all. Their squares
    are halved ``halvings`` times and added; the reciprocal root of the sum, which is normalized to 29..31 bits, comes
    from a table of 15 bits, in the bytes ``high`` and ``low``, and a step of Newton's method. A quotient has
    `ROOT_BITS` fractional bits, less the root of the ratio of the count of elements and ``2 ** halvings``, which is in
    ``gain``. The product with ``gain`` is halved ``gain_shift`` times.
    """
    wide = centered(x, zero_point)
    parts = rescaled(wide, 2**30, 30 - fraction)
    if centers:
        parts = parts - rescaled(wide.sum(axes, keepdim=True), mean_multiplier, mean_shift)
    squares = rescaled(parts * parts, 2**30, 30 + halvings).sum(axes, keepdim=True)
    sums = (squares + eps).clamp(min=1)
    pairs = torch.zeros_like(sums)
    for bits in range(29, 0, -2):  # half of the leading zeros
        pairs = pairs + (sums < 2**bits)
    mantissa = sums << (pairs * 2)
    place = mantissa >> 23
    guess = looked_up(place, high, low)
    error = rescaled(mantissa * (guess * guess), 1, 30)
    root = rescaled(guess * (3 * 2**29 - error), 1, 17)
    product = rescaled(parts * root, 1, 13)
    quotient = (((product * 2) >> (15 - pairs)) + 1) >> 1
    return result_of(rescaled_by(quotient * gain, gain_shift) + offset, *out)


def root_table() -> list[Tensor]:
    """Return the bytes of reciprocal roots with 15 bits of ``(i + 0.5) / 64``, for i in 64..255; `normalize`."""
    roots = ((torch.arange(256).double() + 0.5) / 64).clamp(min=1).rsqrt().mul(2**15).round().long()
    return bytes_of(roots.clamp(max=2**15 - 1))


def rescaled_by(values: Tensor, shift: int) -> Tensor:
    """Return ``values`` halved ``shift`` times, rounded to the nearest, halves up."""
    return rescaled(values, 1, shift) if shift else values


@defines("Tensor x, int[] sizes, int[] scale, int[] offset, int[] border")
def resize_nearest(
    x: Tensor, sizes: Sequence[int], scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> Tensor:
    """Return the nearest elements of ``x[N, C, H, W]`` at ``(i * denominator + offset) / numerator``.

    ``scale`` has the numerator and the denominator of each axis.
    """
    del border
    for axis in (0, 1):
        numerator, denominator = scale[2 * axis : 2 * axis + 2]
        places = (2 * (i * denominator + offset[axis]) + numerator for i in range(sizes[axis]))
        last = x.shape[2 + axis] - 1
        indices = [min(max(each // (2 * numerator), 0), last) for each in places]
        x = x.index_select(2 + axis, torch.tensor(indices, device=x.device))
    return x.clone()


@defines(f"Tensor x, int[] sizes, int[] scale, int[] offset, int[] border, int zero_point, {ONE}")
def resize_bilinear(
    x: Tensor,
    sizes: Sequence[int],
    scale: Sequence[int],
    offset: Sequence[int],
    border: Sequence[int],
    zero_point: int,
    *out: int,
) -> Tensor:
    """Return linear interpolations of ``x[N, C, H, W]`` at ``(i * denominator + offset) / numerator``.

    Weights are multiples of one over the numerator, so that sums are those of TOSA's ``resize``.
    """
    del border
    sums = centered(x, zero_point)
    for axis in (0, 1):
        numerator, denominator = scale[2 * axis : 2 * axis + 2]
        places = [divmod(i * denominator + offset[axis], numerator) for i in range(sizes[axis])]
        last, shape = x.shape[2 + axis] - 1, (1, 1, -1, 1) if axis == 0 else (1, 1, 1, -1)
        parts: list[Tensor] = []
        for step in (0, 1):
            indices = torch.tensor([min(max(first + step, 0), last) for first, _ in places], device=x.device)
            weights = [rest if step else numerator - rest for _, rest in places]
            weight = torch.tensor(weights, dtype=torch.int64, device=x.device).reshape(shape)
            parts.append(sums.index_select(2 + axis, indices) * weight)
        sums = parts[0] + parts[1]
    return result_of(sums, *out)


@defines(f"Tensor x, Tensor weight, Tensor bias, Tensor offset, int[] stride, int[] padding, int zero_point, {EACH}")
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    offset: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return the transposed convolution of ``x[N, C, H, W]`` with ``weight[O, C, h, w]``, with ``padding`` added."""
    spread = interspersed(x, stride, zero_point)
    sides = [size - 1 for size in weight.shape[2:] for _ in (0, 1)]
    sides = [each + added for each, added in zip(sides, padding, strict=True)]
    spread = padded_by(spread, sides, zero_point) if any(sides) else spread
    sums = integer.conv2d_sums(spread, weight.flip((2, 3)), [1, 1], [1, 1], 1) + offset.reshape(-1, 1, 1)
    return by_channel(sums, (-1, 1, 1), multipliers, shifts, *out)


def interspersed(x: Tensor, stride: Sequence[int], value: int) -> Tensor:
    """Return ``x[N, C, H, W]`` with ``stride - 1`` elements of ``value`` between neighbours."""
    for axis, step in zip((2, 3), stride, strict=True):
        if step > 1:
            size = (x.shape[axis] - 1) * step + 1
            wide = torch.nn.functional.pad(x.unsqueeze(axis + 1), [0] * (2 * (3 - axis)) + [0, step - 1], value=value)
            x = wide.flatten(axis, axis + 1).narrow(axis, 0, size)
    return x
