"""Order: running maxima, medians, modes, and places in sorted sequences.

The rules below end in ``aten.sort`` where they sort; `sorting` has that for a target without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op

from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits, positions
from fx_importer.fx_graph.operators import aten


@decomposes(aten.topk.default)
def topk_in_any_order(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """In order where no order is asked for: the C++ lowerings know no other."""
    return NotImplemented if sorted else torch.topk(x, k, dim, largest, True)


def scan(tensors: tuple[Tensor, ...], dim: int, combine: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Combine each element with all before it along ``dim``, in as many steps as the size has binary digits.

    ``combine(before, after)`` takes and returns tuples as long as ``tensors``, and is associative. (Hillis and Steele,
    "Data parallel algorithms", 1986.)
    """
    size, shift = tensors[0].shape[dim], 1
    if not isinstance(size, int):
        return _scan_in_loop(tensors, dim, combine)
    while shift < size:
        before = tuple(each.narrow(dim, 0, size - shift) for each in tensors)
        after = tuple(each.narrow(dim, shift, size - shift) for each in tensors)
        combined = combine(before, after)
        done = (each.narrow(dim, 0, shift) for each in tensors)
        tensors = tuple(torch.cat([a, b], dim) for a, b in zip(done, combined, strict=True))
        shift *= 2
    return tensors


def _scan_in_loop(
    tensors: tuple[Tensor, ...], dim: int, combine: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """The same for a size that is not known: each step is one of a loop."""
    size = tensors[0].shape[dim]
    along = [-1 if axis == dim % tensors[0].dim() else 1 for axis in range(tensors[0].dim())]
    places = torch.arange(size, device=tensors[0].device)

    def more(shift: Tensor, *rest: Tensor) -> Tensor:
        return torch.any(rest[-1] >= shift)

    def step(shift: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        *now, places = rest
        before = tuple(each.index_select(dim, torch.clamp(places - shift, min=0)) for each in now)
        changed = (places >= shift).reshape(along)
        combined = zip(combine(before, tuple(now)), now, strict=True)
        return shift * 2, *(torch.where(changed, new, old) for new, old in combined)

    loop: Any = while_loop_op
    start = torch.ones((), dtype=torch.int64, device=tensors[0].device)
    return tuple(loop(more, step, (start, *(each.contiguous() for each in tensors)), (places,))[1:])


def _running(x: Tensor, dim: int, wins: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """The last of equal elements wins, as does not a number, which nothing takes the place of."""
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
    """The largest element up to each, and where it is."""
    return _running(x, dim, torch.ge)


@decomposes(aten.cummin.default)
def cummin(x: Tensor, dim: int) -> Any:
    """The smallest element up to each, and where it is."""
    return _running(x, dim, torch.le)


@decomposes(aten.logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    """The logarithm of the running sum of exponentials, each of which may be beyond all numbers."""
    if x.is_complex():
        return NotImplemented
    if x.dim() == 0 or is_empty(x):
        return x.clone()
    return scan((x,), dim, _log_of_sum)[0]


def _log_of_sum(before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    largest = torch.maximum(before[0], after[0])
    rest = torch.log1p(torch.exp(-torch.abs(before[0] - after[0])))
    return (torch.where(torch.abs(largest) == math.inf, largest, largest + rest),)


@decomposes(aten.median.default)
def median(x: Tensor) -> Any:
    """The lower of the middle elements; not a number if any is not."""
    if is_empty(x):
        return NotImplemented
    ordered = torch.sort(x.reshape(-1), 0)[0]
    middle, last = ordered[(x.numel() - 1) // 2], ordered[-1]
    return torch.where(last != last, last, middle) if x.is_floating_point() else middle


@decomposes(aten.median.dim)
def median_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The same along one axis, and where it is: of the numbers that are not, the first."""
    return _median_along(x, dim, keepdim, ignoring_nan=False)


@decomposes(aten.nanmedian.default)
def nanmedian(x: Tensor) -> Any:
    """The lower of the middle elements that are numbers."""
    found = _median_along(x.reshape(-1), 0, False, ignoring_nan=True)
    return found if found is NotImplemented else found[0]


@decomposes(aten.nanmedian.dim)
def nanmedian_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The same along one axis, and where it is."""
    return _median_along(x, dim, keepdim, ignoring_nan=True)


def _median_along(x: Tensor, dim: int, keepdim: bool, ignoring_nan: bool) -> Any:
    if is_empty(x):
        return NotImplemented
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    values, indices = torch.sort(x, dim)
    if x.is_floating_point():
        nans = count(x != x, dim, keepdim=True)
        if ignoring_nan:
            place = torch.clamp(size - 1 - nans, min=0) >> 1
        else:
            middle = torch.scalar_tensor((size - 1) // 2, dtype=nans.dtype)
            place = torch.where(nans > 0, size - nans, middle)
        place = place.to(torch.int64)
        value, index = values.gather(dim, place), indices.gather(dim, place)
    else:
        value, index = (each.narrow(dim, (size - 1) // 2, 1) for each in (values, indices))
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@decomposes(aten.mode.default)
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element along ``dim``, the smallest of several, and where it is last."""
    if is_empty(x):
        return NotImplemented
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    if not fits(x.numel(), size):
        return NotImplemented
    rows = x.movedim(dim, -1)
    numbers = rows.to(torch.int32) if x.dtype == torch.bool else rows
    often = count(numbers.unsqueeze(-1) == numbers.unsqueeze(-2))
    most = torch.amax(often, -1, keepdim=True)
    ordered, order = torch.sort(numbers, -1)
    # The first in order is the smallest; the last of those that equal it is the one to name.
    place = positions(size)
    first = torch.amin(torch.where(often.gather(-1, order) == most, place, size - 1), -1, keepdim=True)
    value = ordered.gather(-1, first.to(torch.int64))
    index = torch.amax(torch.where(numbers == value, place, 0), -1, keepdim=True).to(torch.int64)
    value, index = value.to(x.dtype).movedim(-1, dim), index.movedim(-1, dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@decomposes(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    ordered: Tensor,
    x: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """How many elements of each row of ``ordered`` come before each of ``x``: by comparing all, or bit by bit."""
    x = x if isinstance(x, Tensor) else torch.full((), x, dtype=torch.result_type(ordered, x))
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    right = right or side == "right"
    size = ordered.shape[-1]
    kind = torch.int32 if out_int32 else torch.int64
    values = x.reshape(1) if x.dim() == 0 else x
    if not isinstance(size, int) or (is_static(values) and size * values.numel() <= FEW):
        row = ordered.unsqueeze(-2)
        each = values.unsqueeze(-1)
        found = count(~(row > each if right else row >= each))
    else:
        found = _by_halves(ordered, values, right)
    return found.reshape(x.shape).to(kind)


FEW = 1 << 18
"""Up to so many comparisons are made at once; beyond, one for each binary digit of the result."""


def _by_halves(ordered: Tensor, x: Tensor, right: bool) -> Tensor:
    """Set the binary digits of the results, the highest first, where what lies before stays before."""
    size = ordered.shape[-1]
    found = torch.zeros_like(x, dtype=torch.int64)
    for digit in reversed(range(size.bit_length())):
        tried = found + (1 << digit)
        last = torch.clamp(tried, max=size) - 1
        at = ordered.gather(-1, last) if ordered.dim() > 1 else ordered[last]
        before = ~(at > x if right else at >= x) & (tried <= size)
        found = torch.where(before, tried, found)
    return found


@decomposes(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(x: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    """Which of the intervals between ``boundaries`` each of ``x`` lies in."""
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@decomposes(aten.isin.Tensor_Tensor)
def isin(elements: Tensor, others: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each of ``elements`` is among ``others``."""
    if not fits(elements.numel(), others.numel()):
        return NotImplemented
    found = count(elements.unsqueeze(-1) == others.reshape(-1)) > 0
    return ~found if invert else found


ORDERING = (
    *(cummax, cummin, logcumsumexp, median, median_along, nanmedian, nanmedian_along, mode),
    *(searchsorted, bucketize, isin),
)
