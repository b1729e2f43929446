"""Scales as the multipliers and shifts of TOSA's ``apply_scale_32``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

ADDED_BITS = {8: 20, 16: 13}
"""Fractional bits of the common scale of a sum, by the bits of its operands: both stay below 2³⁰."""


class NoIntegerForm(Exception):
    """An operator stays in floating point; the message says why."""


@dataclass(frozen=True)
class Params:
    """Scale, zero point and range of a quantized tensor: it stands for ``(q - zero_point) * scale``."""

    scale: float
    zero_point: int
    low: int
    high: int
    bits: int = 8
    """Of the integers: 8 or 16; 32 of sums, which are not rescaled."""

    def quantized(self, value: float) -> int:
        """Return ``value`` quantized, an infinity as the bound of the range."""
        if math.isinf(value):
            return self.low if value < 0 else self.high
        return min(max(round(value / self.scale) + self.zero_point, self.low), self.high)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the integers."""
        return {8: torch.int8, 16: torch.int16, 32: torch.int32}[self.bits]

    @property
    def reach(self) -> int:
        """The largest magnitude of ``q - zero_point``."""
        return max(abs(self.low - self.zero_point), abs(self.high - self.zero_point))


def sums_of_scale(scale: float) -> Params:
    """Return the parameters of int32 sums of products, of one scale."""
    return Params(scale, 0, -(2**31), 2**31 - 1, 32)


SUMS = sums_of_scale(1.0)
"""The parameters of int32 sums of products with a weight, which has the scales; the bias is not among them."""


def out_of(params: Params) -> tuple[int, ...]:
    """Return the last arguments of operators that rescale."""
    return (params.zero_point, params.low, params.high, *([] if params.bits == 8 else [params.bits]))


def multiplier_and_shift(scale: float, bound: float, wide: bool = False) -> tuple[int, int]:
    """Return ``scale`` as ``multiplier * 2 ** -shift``, with a multiplier of 31 bits and a shift in 2..62.

    ``bound`` is the largest magnitude of the values to scale, which TOSA requires to be below ``2 ** (shift - 1)``. For
    ``wide`` values, of 48 bits, the multiplier has 15.

    Raises:
        NoIntegerForm: if it is not, or if the shift is out of range.
    """
    mantissa, exponent = math.frexp(scale)
    bits = 15 if wide else 31
    multiplier, shift = round(mantissa * 2**bits), bits - exponent
    if multiplier == 2**bits:
        multiplier, shift = 2 ** (bits - 1), shift - 1
    if shift > 62:  # a product with less than 2⁻³¹
        multiplier, shift = multiplier >> min(shift - 62, bits), 62
    if shift < 2 or bound >= (2**47 if wide else 2 ** min(shift - 1, 31)):
        raise NoIntegerForm(f"values up to {bound:.3g} times {scale:.3g} are out of the range of TOSA's rescale")
    return multiplier, shift


def rescaled(values: Tensor, multiplier: Tensor | int, shift: Tensor | int) -> Tensor:
    """Return ``values``, integers, times ``multiplier * 2 ** -shift``, rounded to the nearest, halves up, as int64.

    TOSA 1.0, ``apply_scale_32`` with single rounding.
    """
    half = 1 << (shift - 1) if isinstance(shift, int) else torch.ones_like(shift) << (shift - 1)
    return (values.to(torch.int64) * multiplier + half) >> shift


def reciprocal(count: int) -> tuple[int, int]:
    """Return the multiplier and the shift of the division by ``count``: TOSA 1.0, ``reciprocal_scale``."""
    bits = (count - 1).bit_length()
    return (((1 << 30) + 1) << bits) // count, 30 + bits
