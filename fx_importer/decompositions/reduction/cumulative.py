"""Rules of cumulative sums, products, extrema and logsumexp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.emulation.integers import is_integer
from fx_importer.decompositions.engine.loops import while_loop
from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import positions
from fx_importer.fx_graph.operators import aten


def scan(tensors: tuple[Tensor, ...], dim: int, combine: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Combine each element with all before it along ``dim``, in as many steps as the size has binary digits.

    ``combine(before, after)`` takes and returns tuples as long as ``tensors``, and is associative. (Hillis and Steele,
    "Data parallel algorithms", 1986.)
    """
    size, shift = tensors[0].shape[dim], 1
    if not isinstance(size, int):
        return _scan_dynamic(tensors, dim, combine)
    while shift < size:
        before = tuple(tensor.narrow(dim, 0, size - shift) for tensor in tensors)
        after = tuple(tensor.narrow(dim, shift, size - shift) for tensor in tensors)
        combined = combine(before, after)
        done = (tensor.narrow(dim, 0, shift) for tensor in tensors)
        tensors = tuple(torch.cat([a, b], dim) for a, b in zip(done, combined, strict=True))
        shift *= 2
    return tensors


def _scan_dynamic(
    tensors: tuple[Tensor, ...], dim: int, combine: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """Return the same for a dynamic size, with a loop over the steps."""
    size = tensors[0].shape[dim]
    along = [-1 if axis == dim % tensors[0].dim() else 1 for axis in range(tensors[0].dim())]
    places = torch.arange(size, device=tensors[0].device)

    def more(shift: Tensor, *rest: Tensor) -> Tensor:
        return torch.any(rest[-1] >= shift)

    def step(shift: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        *now, places = rest
        before = tuple(total.index_select(dim, torch.clamp(places - shift, min=0)) for total in now)
        changed = (places >= shift).reshape(along)
        combined = zip(combine(before, tuple(now)), now, strict=True)
        return shift * 2, *(torch.where(changed, new, old) for new, old in combined)

    start = torch.ones((), dtype=torch.int64, device=tensors[0].device)
    return while_loop(more, step, (start, *tensors), (places,))[1:]


HALF_DTYPES = (torch.float16, torch.bfloat16)


@decomposes(aten.cumsum.default)
def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Accumulate half precision in float32, and complex numbers by parts; others stay."""
    kind = dtype or x.dtype
    if kind.is_complex and x.is_complex():
        return torch.complex(*(torch.cumsum(part, dim) for part in parts_of_tensor(x.to(kind))))
    return torch.cumsum(x.to(kind).float(), dim).to(kind) if kind in HALF_DTYPES else NotImplemented


@decomposes(aten.cumprod.default)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Accumulate half precision in float32, and in a dtype that is given; others stay."""
    kind = dtype or x.dtype
    if kind in HALF_DTYPES:
        return torch.cumprod(x.to(kind).float(), dim).to(kind)
    return NotImplemented if dtype is None else torch.cumprod(x.to(kind), dim).to(kind)  # integers become int64


@decomposes(aten.cumsum.default)
def cumsum_integers(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the cumulative sum of integers in int64, as eager."""
    if not is_integer(x) or x.dtype is torch.int64 or dtype not in (None, torch.int64):
        return NotImplemented
    return torch.cumsum(x.long(), dim)


@decomposes(aten.cumsum.default)
def cumsum_in_narrow_integers(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Accumulate in int32 for a result of 8 or 16 bits, which wraps around."""
    if dtype not in (torch.int8, torch.uint8, torch.int16):
        return NotImplemented
    return torch.cumsum(x.to(dtype).to(torch.int32), dim, dtype=torch.int32).to(dtype)


@decomposes(aten.cumsum.default)
def cumsum_beside_dynamic_axes(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Return the cumulative sum along an axis of static size, if another one is dynamic, by a scan."""
    kind = dtype or (x.dtype if x.is_floating_point() else torch.int64)
    if is_static(x) or not isinstance(x.shape[dim], int) or x.is_complex() or kind in HALF_DTYPES:
        return NotImplemented
    return scan((x.to(kind),), dim, lambda before, after: (before[0] + after[0],))[0]


@decomposes(aten.cumsum.default)
def cumsum_along_dynamic_axis(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Return the cumulative sum along an axis of dynamic size: for each place, the sum of those up to it."""
    kind = dtype or (x.dtype if x.is_floating_point() else torch.int64)
    if not x.dim() or isinstance(x.shape[dim], int) or x.is_complex() or kind in HALF_DTYPES:
        return NotImplemented
    rows, index = x.to(kind).movedim(dim, -1), positions(x.shape[dim])
    before = index <= index.unsqueeze(-1)
    sums = torch.sum(torch.where(before, rows.unsqueeze(-2), torch.zeros((), dtype=kind)), -1, dtype=kind)
    return sums.movedim(-1, dim)


@decomposes(aten.cumprod.default)
def cumprod_by_scan(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Return the cumulative product, by a scan; half precision in float32."""
    kind = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    x = x.to(wide)
    if x.dim() == 0:
        return x.to(kind)
    return scan((x,), dim, lambda before, after: (before[0] * after[0],))[0].to(kind)


def _cumulative_extremum(x: Tensor, dim: int, wins: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """Return cumulative extrema and their indices: ties keep the last index; NaN propagates."""
    if x.dim() == 0 or is_empty(x):
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    shape = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    places = positions(x.shape[dim]).reshape(shape).expand(x.shape)

    def combine(before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        later = wins(after[0], before[0])
        if x.is_floating_point():
            later = later | (after[0] != after[0])
        return torch.where(later, after[0], before[0]), torch.where(later, after[1], before[1])

    source = x.to(torch.int32) if x.dtype == torch.bool else x
    values, indices = scan((source, places), dim, combine)
    return values.to(x.dtype), indices.to(torch.int64)


@decomposes(aten.cummax.default)
def cummax(x: Tensor, dim: int) -> Any:
    """Return the cumulative maximum and its index."""
    return _cumulative_extremum(x, dim, torch.ge)


@decomposes(aten.cummin.default)
def cummin(x: Tensor, dim: int) -> Any:
    """Return the cumulative minimum and its index."""
    return _cumulative_extremum(x, dim, torch.le)


@decomposes(aten.logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    """Return the logarithm of the cumulative sum of exponentials, without overflow."""
    if x.is_complex():
        return NotImplemented
    if x.dim() == 0 or is_empty(x):
        return x.clone()
    return scan((x,), dim, _logaddexp)[0]


def _logaddexp(before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    largest = torch.maximum(before[0], after[0])
    rest = torch.log1p(torch.exp(-torch.abs(before[0] - after[0])))
    return (torch.where(torch.abs(largest) == math.inf, largest, largest + rest),)


SCANS = (cummax, cummin, logcumsumexp)
