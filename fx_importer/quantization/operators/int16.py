"""Operators on int16 activations, with weights of int8 and accumulators of 48 bits: see `int8`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_importer.quantization.operators.int8 import (
    EACH,
    ONE,
    by_channel,
    defines,
    integer,
    padded_by,
    quotients,
    result_of,
)
from fx_importer.quantization.scales import rescaled

FRACTION = 7
"""Bits between two entries of a table."""


@defines(f"Tensor x, Tensor weight, int[] bias, int[] stride, int[] padding, int[] dilation, int groups, {EACH}")
def wide_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Sequence[int],
    stride: list[int],
    padding: Sequence[int],
    dilation: list[int],
    groups: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return the convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]``, of int8."""
    padded = padded_by(x, padding) if any(padding) else x
    offset = torch.tensor(bias, dtype=torch.int64, device=x.device).reshape(-1, 1, 1)
    sums = integer.conv2d_sums(padded, weight, stride, dilation, groups) + offset
    return by_channel(sums, (-1, 1, 1), multipliers, shifts, *out)


@defines(f"Tensor x, Tensor weight, int[] bias, {EACH}")
def wide_linear(
    x: Tensor, weight: Tensor, bias: Sequence[int], multipliers: Sequence[int], shifts: Sequence[int], *out: int
) -> Tensor:
    """Return ``x[..., K]`` times ``weight[N, K]`` transposed, of int8."""
    offset = torch.tensor(bias, dtype=torch.int64, device=x.device)
    sums = integer.linear_sums(x.reshape(-1, x.shape[-1]), weight) + offset
    return by_channel(sums, (-1,), multipliers, shifts, *out).reshape([*x.shape[:-1], weight.shape[0]])


@defines(f"Tensor x, Tensor entries, {ONE}")
def wide_table(x: Tensor, entries: Tensor, *out: int) -> Tensor:
    """Return linear interpolations of ``entries`` at each 128th of int16, of 513, rescaled."""
    return result_of(interpolated(x, entries), *out)


@defines(
    "Tensor x, Tensor entries, Tensor[] reciprocals, int place_multiplier, int place_shift, Tensor? mask, int axis, "
    f"{ONE}"
)
def wide_softmax(
    x: Tensor,
    entries: Tensor,
    reciprocals: Sequence[Tensor],
    place_multiplier: int,
    place_shift: int,
    mask: Tensor | None,
    axis: int,
    *out: int,
) -> Tensor:
    """Return powers of ``x`` less its largest element, over their sum along ``axis``; the scale is that of 2⁻¹⁵.

    ``entries`` is a table of powers with 15 bits of differences, rescaled and plus 32767. See `softmax`.
    """
    if mask is not None:
        x = torch.where(mask, x, -(2**15))
    below = x.to(torch.int32) - x.amax(axis, keepdim=True).to(torch.int32)
    place = result_of(below, place_multiplier, place_shift, 2**15 - 1, -(2**15), 2**15 - 1, 16)
    powers = rescaled(interpolated(place, entries), 2**30, 30 + FRACTION)
    return result_of(quotients(powers, reciprocals, mask, axis), *out)


def interpolated(x: Tensor, entries: Tensor) -> Tensor:
    """Return ``entries`` between each 128th of int16, with 7 more bits, as int32. TOSA 1.0, ``TABLE``."""
    places = x.to(torch.int64) + 2**15
    base = entries[places >> FRACTION].to(torch.int32)
    slope = entries[(places >> FRACTION) + 1].to(torch.int32) - base
    return base * 2**FRACTION + slope * (places & (2**FRACTION - 1)).to(torch.int32)
