"""Windows of pools along each axis, with their maxima and sums, which combine the k-th elements of all windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Windows:
    """The windows along one axis."""

    starts: Tensor
    """[outputs]; negative in the padding."""
    ends: Tensor
    """[outputs], exclusive; beyond ``size`` in the padding."""
    size: int
    length: int
    """Number of elements of the longest window."""
    dilation: int = 1
    has_empty: bool = False
    """Whether a window may have no element: it begins in the padding, and its dilation is larger than the axis."""
    stride: int | None = None
    """The distance of the windows, if all begin and end in the axis, the first one at 0; else None."""

    def elements(self, x: Tensor, axis: int, k: int) -> Tensor:
        """Return the k-th element of each window of ``x`` along ``axis``: a slice, where indices would be gathered."""
        if self.stride is None:
            return x.index_select(axis, self.places(k))
        first = k * self.dilation
        return torch.ops.aten.slice(x, axis, first, first + (len(self.starts) - 1) * self.stride + 1, self.stride)

    def places(self, k: int) -> Tensor:
        """Return the index of the k-th element of each window, clamped to its first and last one."""
        step = self.dilation
        first = torch.where(self.starts < 0, torch.remainder(self.starts, step), self.starts)
        ends = up_to(self.ends, self.size)
        last = self.starts + torch.div(ends - 1 - self.starts, step, rounding_mode="floor") * step
        return torch.minimum(torch.maximum(self.starts + k * step, first), last)

    def holds(self, k: int) -> Tensor:
        """Return whether each window has a k-th element."""
        place = self.starts + k * self.dilation
        return (place >= 0) & (place < up_to(self.ends, self.size))


def up_to(places: Tensor, size: int) -> Tensor:
    """Return ``places``, none beyond ``size``, which may be dynamic."""
    if isinstance(size, int):
        return torch.clamp(places, max=size)
    return torch.minimum(places, torch.scalar_tensor(size, dtype=places.dtype))


def sliding_windows(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> Windows:
    """Return the windows of a pool along an axis, whose size may be dynamic."""
    reach = dilation * (kernel - 1) + 1
    last: Any = (size + 2 * padding - reach + (stride - 1 if ceil else 0)) // stride
    if ceil:  # the last window begins in the axis, or in the padding before it
        last = torch.sym_min(last, (size + padding - 1) // stride)
    starts = torch.arange(last + 1) * stride - padding
    if not isinstance(size, int):
        return Windows(starts, starts + reach, size, kernel, dilation, has_empty=dilation > 1 and padding > 0)
    within = (size - 1 + padding) // dilation + 1  # elements of the first window, however large the kernel is
    begins = [i * stride - padding for i in range(last + 1)]
    empty = any((begin % dilation if begin < 0 else begin) >= min(size, begin + reach) for begin in begins)
    is_regular = last >= 0 and padding == 0 and last * stride + reach <= size
    length = min(kernel, max(within, 1))
    return Windows(starts, starts + reach, size, length, dilation, empty, stride if is_regular else None)


def adaptive_windows(size: int, outputs: int) -> Windows:
    each = torch.arange(outputs)
    starts = torch.div(each * size, outputs, rounding_mode="floor")
    ends = torch.div((each + 1) * size + outputs - 1, outputs, rounding_mode="floor")
    longest = max(-((i + 1) * size // -outputs) - i * size // outputs for i in range(outputs))
    return Windows(starts, ends, size, longest)


def window_maxima(x: Tensor, windows: Sequence[Windows]) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window along the last axes, and its flat index.

    Ties keep the first index; NaN propagates, with the last index, as in eager.
    """
    axes = len(windows)
    shape = x.shape[-axes:]
    flat = torch.arange(math.prod(shape), dtype=torch.int32).reshape(shape)
    for axis, window in reversed(list(enumerate(windows, -axes))):
        value, where = window.elements(x, axis, 0), window.elements(flat, axis, 0)
        for k in range(1, window.length):
            other, there = window.elements(x, axis, k), window.elements(flat, axis, k)
            wins = other > value
            if x.is_floating_point():
                wins = wins | (other != other)
            value, where = torch.where(wins, other, value), torch.where(wins, there, where)
        x, flat = value, where
    return x, flat.expand(x.shape).to(torch.int64)


def window_sums(x: Tensor, windows: Sequence[Windows]) -> Tensor:
    """Return the sum of each window along the last axes."""
    for axis, window in enumerate(windows, x.dim() - len(windows)):
        shape = [-1 if dim == axis else 1 for dim in range(x.dim())]
        zero = torch.zeros((), dtype=x.dtype)
        terms = [
            torch.where(window.holds(k).reshape(shape), x.index_select(axis, window.places(k)), zero)
            for k in range(window.length)
        ]
        x = terms[0]
        for term in terms[1:]:
            x = x + term
    return x
