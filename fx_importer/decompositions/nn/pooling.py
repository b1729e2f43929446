"""Pools that the lowerings lack, one axis after the other: the k-th elements of all windows are combined for each k."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.interior_padding import of_axes
from fx_importer.fx_graph.operators import aten

_for_values: ContextVar[bool] = ContextVar("for_values", default=False)
"""Set while a rule emits what it stands for, whose values have a lowering."""


@dataclass(frozen=True)
class _Windows:
    """The windows along one axis."""

    starts: Tensor
    """[outputs]; before the axis where there is padding."""
    ends: Tensor
    """[outputs]; behind the axis where there is padding. No window is without an element between both."""
    size: int
    length: int
    """Of the longest window, in elements."""
    dilation: int = 1

    def places(self, k: int) -> Tensor:
        """Return the place of the k-th element of each window, or of its first or last that exists."""
        step = self.dilation
        first = torch.where(self.starts < 0, torch.remainder(self.starts, step), self.starts)
        ends = torch.clamp(self.ends, max=self.size)
        last = self.starts + torch.div(ends - 1 - self.starts, step, rounding_mode="floor") * step
        return torch.minimum(torch.maximum(self.starts + k * step, first), last)

    def holds(self, k: int) -> Tensor:
        """Return whether each window has a k-th element."""
        place = self.starts + k * self.dilation
        return (place >= 0) & (place < torch.clamp(self.ends, max=self.size))


def _sliding(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> _Windows:
    reach = dilation * (kernel - 1) + 1
    outputs = -((size + 2 * padding - reach) // -stride) if ceil else (size + 2 * padding - reach) // stride
    if ceil and outputs * stride >= size + padding:
        outputs -= 1  # the last window begins in the axis, or in the padding before it
    starts = torch.arange(outputs + 1) * stride - padding
    within = (size - 1 + padding) // dilation + 1  # of the first window, as long as the kernel may be
    return _Windows(starts, starts + reach, size, min(kernel, max(within, 1)), dilation)


def _adaptive(size: int, outputs: int) -> _Windows:
    each = torch.arange(outputs)
    starts = torch.div(each * size, outputs, rounding_mode="floor")
    ends = torch.div((each + 1) * size + outputs - 1, outputs, rounding_mode="floor")
    longest = max(-((i + 1) * size // -outputs) - i * size // outputs for i in range(outputs))
    return _Windows(starts, ends, size, longest)


def _largest(x: Tensor, windows: Sequence[_Windows]) -> tuple[Tensor, Tensor]:
    """Return the largest element of each window along the last axes, and its place in their flat order.

    The first of equals; the last of what is not a number, as in eager.
    """
    axes = len(windows)
    shape = x.shape[-axes:]
    flat = torch.arange(shape.numel(), dtype=torch.int32).reshape(shape).expand(x.shape)
    for axis, window in reversed(list(enumerate(windows, x.dim() - axes))):
        place = window.places(0)
        value, where = x.index_select(axis, place), flat.index_select(axis, place)
        for k in range(1, window.length):
            place = window.places(k)
            other, there = x.index_select(axis, place), flat.index_select(axis, place)
            wins = other > value
            if x.is_floating_point():
                wins = wins | (other != other)
            value, where = torch.where(wins, other, value), torch.where(wins, there, where)
        x, flat = value, where
    return x, flat.to(torch.int64)


def _total(x: Tensor, windows: Sequence[_Windows]) -> Tensor:
    """Return the sum of each window along the last axes."""
    for axis, window in enumerate(windows, x.dim() - len(windows)):
        shape = [-1 if each == axis else 1 for each in range(x.dim())]
        zero = torch.zeros((), dtype=x.dtype)
        terms = [
            torch.where(window.holds(k).reshape(shape), x.index_select(axis, window.places(k)), zero)
            for k in range(window.length)
        ]
        x = terms[0]
        for term in terms[1:]:
            x = x + term
    return x


def _max_pool(axes: int, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    settings = [of_axes(each, axes) for each in (kernel, stride or kernel, padding, dilation)]
    sizes = x.shape[-axes:]
    windows = [
        _sliding(size, length, step, pad, spread, ceil_mode)
        for size, length, step, pad, spread in zip(sizes, *settings, strict=True)
    ]
    return _largest(x, windows)


@decomposes(aten.max_pool2d_with_indices.default)
def max_pool2d(
    x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Values by their own lowering, where it takes them; indices by comparing, left out where nothing reads them."""
    if _for_values.get() or not is_static(x):
        return NotImplemented
    values, indices = _max_pool(2, x, kernel, stride, padding, dilation, ceil_mode)
    if x.dim() == 4 and not ceil_mode and set(of_axes(dilation, 2)) == {1}:
        token = _for_values.set(True)
        try:
            values = aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[0]
        finally:
            _for_values.reset(token)
    return values, indices


@decomposes(aten.max_pool3d_with_indices.default)
def max_pool3d(
    x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """The largest elements, and where they are."""
    return _max_pool(3, x, kernel, stride, padding, dilation, ceil_mode) if is_static(x) else NotImplemented


@decomposes(aten.max_pool3d_with_indices.default)
def max_pool3d_of_integers(x: Tensor, *settings: Any) -> Any:
    """Of integers only; others stay."""
    return NotImplemented if x.is_floating_point() else max_pool3d(x, *settings)


@decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """The largest elements of as many windows as are asked for, and where they are."""
    if not is_static(x) or not x.numel():
        return NotImplemented
    axes = len(output_size)
    sizes = x.shape[-axes:]
    if axes == 2 and all(size % number == 0 for size, number in zip(sizes, output_size, strict=True)):
        batch = x if x.dim() == 4 else x.unsqueeze(0)
        kernel = [size // number for size, number in zip(sizes, output_size, strict=True)]
        found = aten.max_pool2d_with_indices(batch, kernel)
        return found if x.dim() == 4 else tuple(each.squeeze(0) for each in found)
    return _largest(x, [_adaptive(size, number) for size, number in zip(sizes, output_size, strict=True)])


@decomposes(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """The averages of as many windows as are asked for."""
    if not is_static(x) or not x.numel():
        return NotImplemented
    if list(output_size) == [1, 1, 1]:
        return torch.mean(x, (-3, -2, -1), keepdim=True)
    windows = [_adaptive(size, number) for size, number in zip(x.shape[-3:], output_size, strict=True)]
    total = _total(x, windows)
    for axis, each in enumerate(reversed(windows)):
        total = total / (each.ends - each.starts).to(x.dtype).reshape(-1, *[1] * axis)
    return total


@decomposes(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Sums, divided by the number of their terms. Plain ones of floats, of two axes, have a lowering."""
    axes = 3 if x.dim() == 5 or len(kernel) == 3 else 2
    plain = axes == 2 and not ceil_mode and divisor_override is None and x.dim() == 4
    if not is_static(x) or (plain and x.is_floating_point()):
        return NotImplemented
    settings = [of_axes(each, axes) for each in (kernel, list(stride) or kernel, padding)]
    windows = [
        _sliding(size, length, step, pad, 1, ceil_mode)
        for size, length, step, pad in zip(x.shape[-axes:], *settings, strict=True)
    ]
    total = _total(x, windows)
    if divisor_override is not None:
        return _quotient(total, torch.full((), divisor_override, dtype=x.dtype))
    for axis, (each, pad) in enumerate(zip(reversed(windows), reversed(settings[2]), strict=True)):
        if count_include_pad:
            terms = torch.clamp(each.ends, max=each.size + pad) - each.starts
        else:
            terms = torch.clamp(each.ends, max=each.size) - torch.clamp(each.starts, min=0)
        total = _quotient(total, terms.to(x.dtype).reshape(-1, *[1] * axis))
    return total


def _in_full(operator: Any, axes: int) -> Decomposition:
    @decomposes(operator)
    def rule(x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *how: Any, **more: Any) -> Any:
        full = of_axes(kernel, axes)
        return NotImplemented if stride else operator(x, full, full, *how, **more)

    return rule


STRIDES_IN_FULL = (
    _in_full(aten.avg_pool1d.default, 1),
    _in_full(aten.avg_pool2d.default, 2),
    _in_full(aten.avg_pool3d.default, 3),
    _in_full(aten.max_pool2d_with_indices.default, 2),
    _in_full(aten.max_pool3d_with_indices.default, 3),
)
"""The same pools, with a stride that is given."""


def _quotient(x: Tensor, by: Tensor) -> Tensor:
    """Return ``x / by``; of integers, towards zero."""
    return x / by if x.is_floating_point() else torch.div(x, by, rounding_mode="trunc")


POOLING = (max_pool2d, max_pool3d, adaptive_max_pool, adaptive_avg_pool, avg_pool)
