"""Definition of the operators ``fx_importer_integer.*``, and requantization in eager PyTorch.

Results are ``clamp(rescale(accumulator) + zero_point, low, high)``, where ``rescale`` multiplies by ``multiplier * 2 **
-shift``. A parameter ``zero_point`` belongs to the operands. Paddings are top, bottom, left, right. ``offset`` is the
bias minus the contribution of the zero point to the sums of a channel: the bias of sums of ``x`` itself.

Output types without a lowering of an operator decompose it to its eager form: int8 matmuls and convolutions become
operators ``*_sums``, which wrap as int32 does, and the rest becomes integer arithmetic of ATen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer.quantization.scales import rescaled

integer: Any = torch.ops.fx_importer_integer
"""The namespace of the operators."""

INTEGER_LIBRARY = "fx_importer_integer"
"""The name of the namespace."""

_LIBRARY = torch.library.Library(INTEGER_LIBRARY, "DEF")

_OUT = "int out_zero_point, int low, int high, int bits=8"

PER_TENSOR = f"int multiplier, int shift, {_OUT}"
"""The last parameters of operators that rescale by one scale."""

PER_CHANNEL = f"int[] multipliers, int[] shifts, {_OUT}"
"""The last parameters of operators that rescale by one scale, or by one for each channel."""


def defines(schema: str, *tags: torch.Tag) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Define an operator of the namespace with the parameters ``schema`` by a function of its name."""

    def define(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = _LIBRARY.define(f"{function.__name__}({schema}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag, *tags))
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return function

    return define


def centered(x: Tensor, zero_point: int) -> Tensor:
    """Return ``x`` minus its zero point, as int64."""
    return x.to(torch.int64) - zero_point


def pad_image(x: Tensor, padding: Sequence[int], value: float = 0.0) -> Tensor:
    """Return ``x[..., H, W]`` with ``value`` at its sides."""
    top, bottom, left, right = padding
    return F.pad(x, (left, right, top, bottom), value=value)


def requantized_by_channel(
    sums: Tensor, shape: tuple[int, ...], multipliers: Sequence[int], shifts: Sequence[int], *out: int
) -> Tensor:
    """Return a result with one scale, or with a scale for each channel; scales have ``shape`` to broadcast."""
    if len(multipliers) == 1:
        return requantized(sums, multipliers[0], shifts[0], *out)
    multiplier, shift = (
        torch.tensor(values, dtype=torch.int64, device=sums.device).reshape(shape) for values in (multipliers, shifts)
    )
    return requantized(sums, multiplier, shift, *out)


def requantized(
    sums: Tensor, multiplier: Tensor | int, shift: Tensor | int, zero_point: int, low: int, high: int, bits: int = 8
) -> Tensor:
    """Return ``sums`` rescaled to int8, or to int16 with ``bits`` of 16; with 32, ``sums`` as they are."""
    if bits == 32:
        return sums
    levels = (rescaled(sums, multiplier, shift) + zero_point).clamp(low, high)
    return levels.to(torch.int8 if bits == 8 else torch.int16)
