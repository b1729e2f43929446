"""Decompositions of max and average pools that the lowerings lack, axis by axis, and windows of pools."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.static_shapes import are_static, is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.interior_padding import per_axis
from fx_importer.fx_graph.operators import aten


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
    last_end: int = 0
    """The end of the last window, if the size is static."""
    is_cut: bool = False
    """Whether ``ceil_mode`` would add another window, which begins after the axis, and is left out."""

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
        position = self.starts + k * self.dilation
        return (position >= 0) & (position < up_to(self.ends, self.size))


def up_to(places: Tensor, size: int) -> Tensor:
    """Return ``places``, none beyond ``size``, which may be dynamic."""
    if isinstance(size, int):
        return torch.clamp(places, max=size)
    return torch.minimum(places, torch.scalar_tensor(size, dtype=places.dtype))


def sliding_windows(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> Windows:
    """Return the windows of a pool along an axis, whose size may be dynamic."""
    reach = dilation * (kernel - 1) + 1
    last: Any = (size + 2 * padding - reach + (stride - 1 if ceil else 0)) // stride
    rounded = last
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
    distance = stride if is_regular else None
    end = begins[-1] + reach if begins else 0
    return Windows(starts, starts + reach, size, length, dilation, empty, distance, end, last < rounded)


def adaptive_windows(size: int, outputs: int) -> Windows:
    windows = torch.arange(outputs)
    starts = torch.div(windows * size, outputs, rounding_mode="floor")
    ends = torch.div((windows + 1) * size + outputs - 1, outputs, rounding_mode="floor")
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


_max_pool_values: ContextVar[bool] = ContextVar("for_values", default=False)
"""Set while a rule emits its own operator, whose values have a lowering."""


def _windows(
    axes: int, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[Windows]:
    settings = [per_axis(setting, axes) for setting in (kernel, stride or kernel, padding, dilation)]
    return [
        sliding_windows(size, length, step, pad, spread, ceil_mode)
        for size, length, step, pad, spread in zip(x.shape[-axes:], *settings, strict=True)
    ]


def _max_pool(axes: int, x: Tensor, *settings: Any) -> Any:
    windows = _windows(axes, x, *settings)
    return NotImplemented if any(window.has_empty for window in windows) else window_maxima(x, windows)


def _values_and_indices(operator: OpOverload, *, for_tosa: bool) -> Decomposition:
    """Return the rule of a max pool: values by their own lowering where supported, and indices by comparison."""
    axes = 3 if operator == aten.max_pool3d_with_indices.default else 2

    @decomposes(operator)
    def rule(x: Tensor, *settings: Any) -> Any:
        dynamic = for_tosa or not x.is_floating_point()  # no C++ lowering finds the indices of integers
        if _max_pool_values.get() or not (dynamic or is_static(x)):
            return NotImplemented
        defaults: tuple[Any, ...] = ((), 0, 1, False)
        kernel, stride, padding, dilation, ceil_mode = (*settings, *defaults[len(settings) - 1 :])
        windows = _windows(axes, x, kernel, stride, padding, dilation, ceil_mode)
        if any(window.has_empty for window in windows):
            return NotImplemented
        values, indices = window_maxima(x, windows)
        small = x.is_floating_point() or (axes == 2 and x.dtype == torch.int8)  # no backend pools other integers
        static = are_static(*x.shape[-axes:])
        lacking = for_tosa and any(window.dilation > 1 or window.is_cut for window in windows)
        if small and x.dim() == axes + 2 and not lacking and (static or not ceil_mode):
            if not static:  # the C++ lowering drops a padding at the end
                x, padding = _padded(x, per_axis(padding, axes), -math.inf), 0
            token = _max_pool_values.set(True)
            try:
                values = operator(x, kernel, stride, padding, dilation, ceil_mode)[0]
            finally:
                _max_pool_values.reset(token)
        return values, indices

    return rule


def _padded(x: Tensor, before: Sequence[int], value: float, after: Sequence[int] | None = None) -> Tensor:
    """Return ``x`` with a border of ``value``, as wide after each axis as before it if ``after`` is None.

    Integers have their least number in place of -inf.
    """
    widths = [width for both in zip(reversed(before), reversed(after or before), strict=True) for width in both]
    if not any(widths):
        return x
    least = value if x.is_floating_point() else max(value, torch.iinfo(x.dtype).min)
    return aten.constant_pad_nd(x, widths, least)


max_pool2d = _values_and_indices(aten.max_pool2d_with_indices.default, for_tosa=False)
max_pool2d_for_tosa = _values_and_indices(aten.max_pool2d_with_indices.default, for_tosa=True)
max_pool3d_with_own_values = _values_and_indices(aten.max_pool3d_with_indices.default, for_tosa=False)


@decomposes(aten.max_pool3d_with_indices.default)
def max_pool3d(
    x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Return the maxima of the windows and their flat indices."""
    return _max_pool(3, x, kernel, stride, padding, dilation, ceil_mode)


@decomposes(aten.max_pool2d_with_indices.default)
def max_pool2d_at_once(
    x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Return the maxima of the windows and their flat indices: a lowering of the values would find the maxima again."""
    return _max_pool(2, x, kernel, stride, padding, dilation, ceil_mode) if is_static(x) else NotImplemented


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
    """Return window sums divided by window sizes. Pools that do not count padding, as TOSA has them, have no match."""
    axes = 3 if x.dim() == 5 or len(kernel) == 3 else 2
    pads = per_axis(padding, axes)
    windows = _windows(axes, x, kernel, list(stride), pads, 1, ceil_mode)
    if axes == 2 and x.dim() == 4 and x.is_floating_point():
        static = are_static(*x.shape[2:]) and _fit(windows, kernel)
        if divisor_override is None and not (ceil_mode and (not static or any(window.is_cut for window in windows))):
            if not any(pads) or (static and not (ceil_mode and count_include_pad)):
                return NotImplemented
            if count_include_pad and not ceil_mode:  # the C++ lowering drops a padding at the end
                return aten.avg_pool2d(_padded(x, pads, 0.0), kernel, stride)
        if static:
            terms = _terms(windows, pads, count_include_pad, divisor_override)
            means = aten.avg_pool2d(_padded(x, pads, 0.0, _after(windows)), kernel, stride)
            return means * (math.prod(per_axis(kernel, axes)) / terms.to(x.dtype))
    terms = _terms(windows, pads, count_include_pad, divisor_override)
    return _quotient(window_sums(x, windows), terms.to(x.dtype))


@decomposes(aten.avg_pool2d.default)
def avg_pool2d_by_constants(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Divide the sums of windows by constants, where windows have several sizes."""
    pads = per_axis(padding, 2)
    if not (are_static(*x.shape[2:]) and x.dim() == 4 and x.is_floating_point()) or divisor_override is not None:
        return NotImplemented
    if not ceil_mode and (count_include_pad or not any(pads)):
        return NotImplemented
    windows = _windows(2, x, kernel, list(stride), pads, 1, ceil_mode)
    if not _fit(windows, kernel):
        return NotImplemented
    wide = x.float() if x.dtype in HALF_DTYPES else x  # sums overflow
    sums = aten.avg_pool2d(_padded(wide, pads, 0.0, _after(windows)), kernel, stride, 0, False, True, 1)
    return (sums / _terms(windows, pads, count_include_pad, None).to(wide.dtype)).to(x.dtype)


def _fit(windows: Sequence[Windows], kernel: Sequence[int]) -> bool:
    """Return whether no window is longer than its axis: a padding to its length would be most of the image."""
    return all(length <= window.size for window, length in zip(windows, per_axis(kernel, len(windows)), strict=True))


def _after(windows: Sequence[Windows]) -> list[int]:
    """Return the number of elements that ``windows`` of static sizes read after each axis."""
    return [max(window.last_end - window.size, 0) for window in windows]


def _terms(windows: Sequence[Windows], pads: Sequence[int], count_pads: bool, divisor: int | None) -> Tensor:
    """Return the divisor of each window, [*outputs]."""
    if divisor is not None:
        return torch.full((), divisor)
    axes = [
        up_to(window.ends, window.size + pad) - window.starts
        if count_pads
        else up_to(window.ends, window.size) - torch.clamp(window.starts, min=0)
        for window, pad in zip(windows, pads, strict=True)
    ]
    return functools.reduce(torch.mul, [terms.reshape(-1, *[1] * (len(axes) - 1 - k)) for k, terms in enumerate(axes)])


def _with_explicit_stride(operator: Any, axes: int) -> Decomposition:
    @decomposes(operator)
    def rule(x: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *how: Any, **more: Any) -> Any:
        full = per_axis(kernel, axes)
        return NotImplemented if stride else operator(x, full, full, *how, **more)

    return rule


EXPLICIT_STRIDES = (
    _with_explicit_stride(aten.avg_pool1d.default, 1),
    _with_explicit_stride(aten.avg_pool2d.default, 2),
    _with_explicit_stride(aten.avg_pool3d.default, 3),
    _with_explicit_stride(aten.max_pool2d_with_indices.default, 2),
    _with_explicit_stride(aten.max_pool3d_with_indices.default, 3),
)
"""The same pools with an explicit stride."""


def _with_batch(operator: Any, axes: int) -> Decomposition:
    @decomposes(operator)
    def rule(x: Tensor, *how: Any, **more: Any) -> Any:
        if x.dim() != axes + 1:
            return NotImplemented
        batch = operator(x.unsqueeze(0), *how, **more)
        return batch.squeeze(0) if isinstance(batch, Tensor) else tuple(result.squeeze(0) for result in batch)

    return rule


UNBATCHED = (
    _with_batch(aten.avg_pool1d.default, 1),
    _with_batch(aten.avg_pool2d.default, 2),
    _with_batch(aten.avg_pool3d.default, 3),
    _with_batch(aten.max_pool2d_with_indices.default, 2),
    _with_batch(aten.max_pool3d_with_indices.default, 3),
)
"""The same pools of inputs without a batch axis, as a batch of one."""


def _quotient(x: Tensor, by: Tensor) -> Tensor:
    """Return ``x / by``, truncated for integers."""
    return x / by if x.is_floating_point() else torch.div(x, by, rounding_mode="trunc")


POOLING = (max_pool2d_for_tosa, max_pool3d, avg_pool)
