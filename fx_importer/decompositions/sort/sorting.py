"""Rules of sort, topk and kthvalue, for a target without a sort.

Short rows count, for each element, those that come before it: all pairs are compared at once. Longer rows go through a
bitonic network (Batcher, "Sorting networks and their applications", 1968). Sorts are stable, and NaN is greater than
any number, as in torch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty, is_static, static_numel
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, positions
from fx_importer.fx_graph.operators import aten

MAX_PAIRS = 1 << 22
"""Largest number of pairs that are compared at once."""


MAX_ROW = 1 << 16
"""Length of the longest row that is sorted."""


def leading_of_sorted(x: Tensor, kept: int, dim: int, descending: bool) -> Any:
    """Return the first ``kept`` elements of ``x`` sorted along ``dim``, and their indices."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    if (
        isinstance(size, int) and size == 1
    ):  # the C++ lowering of the comparison of all pairs ends in an invalid reshape
        return x.narrow(dim, 0, kept).clone(), torch.zeros_like(x.narrow(dim, 0, kept), dtype=torch.int64)
    if is_empty(x) or (isinstance(size, int) and size > MAX_ROW):
        return NotImplemented
    rows = x.movedim(dim, -1)
    keys = rows.to(torch.int32) if x.dtype == torch.bool else rows
    if not isinstance(size, int) or static_numel(x) * size <= MAX_PAIRS:
        index = positions(keys.shape[-1])
        later = _comes_after(keys.unsqueeze(-1), keys.unsqueeze(-2), index.unsqueeze(-1), index, descending)
        here = count(later).unsqueeze(-2) == positions(kept).unsqueeze(-1)
        order = torch.sum(torch.where(here, index, torch.zeros_like(index)), -1, dtype=torch.int32)
    else:
        order = _argsort_bitonic(keys, descending).narrow(-1, 0, kept)
    indices = order.to(torch.int64)
    return rows.gather(-1, indices).movedim(-1, dim), indices.movedim(-1, dim)


def _comes_after(a: Tensor, b: Tensor, place_a: Tensor, place_b: Tensor, descending: bool) -> Tensor:
    """Return where ``a`` sorts after ``b``: a total order, since no two places are equal."""
    after, same = (a < b if descending else a > b), a == b
    if a.is_floating_point():
        nan_a, nan_b = a != a, b != b
        after = after | (nan_b & ~nan_a if descending else nan_a & ~nan_b)
        same = same | (nan_a & nan_b)
    return after | (same & (place_a > place_b))


def _argsort_bitonic(keys: Tensor, descending: bool) -> Tensor:
    size, rows = keys.shape[-1], keys.shape[:-1]
    full = 1 << (size - 1).bit_length()
    pad = torch.full((*rows, full - size), _greatest_key(keys.dtype, descending), dtype=keys.dtype)
    keys = torch.cat([keys, pad], -1)
    places = positions(full).expand(keys.shape)
    run = 2
    while run <= full:
        distance = run // 2
        while distance:
            blocks = full // (2 * distance)
            halves = [tensor.reshape(*rows, blocks, 2, distance) for tensor in (keys, places)]
            (a, b), (place_a, place_b) = ((half.select(-2, 0), half.select(-2, 1)) for half in halves)
            upward = ((positions(blocks) * (2 * distance)) & run).reshape(blocks, 1) == 0
            swap = _comes_after(a, b, place_a, place_b, descending) == upward
            keys = torch.stack([torch.where(swap, b, a), torch.where(swap, a, b)], -2).reshape(*rows, full)
            swapped = [torch.where(swap, place_b, place_a), torch.where(swap, place_a, place_b)]
            places = torch.stack(swapped, -2).reshape(*rows, full)
            distance //= 2
        run *= 2
    return places.narrow(-1, 0, size)


def _greatest_key(dtype: torch.dtype, descending: bool) -> float:
    """Return a value of ``dtype`` that nothing sorts after."""
    if dtype.is_floating_point:
        return -math.inf if descending else math.nan
    return torch.iinfo(dtype).min if descending else torch.iinfo(dtype).max


@decomposes(aten.sort.default)
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Return the sorted elements and their indices."""
    return leading_of_sorted(x, x.shape[dim] if x.dim() else 1, dim, descending)


@decomposes(aten.sort.stable)
def stable_sort(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """Return `sort`, which is stable."""
    return sort(x, dim, descending)


@decomposes(aten.sort.stable)
def stable_sort_as_sort(
    x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Return ``sort.default``, whose lowering is stable."""
    return torch.sort(x, dim, descending)


@decomposes(aten.topk.default)
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return the first ``k`` sorted elements and their indices; C++ searches one after the other, which suits few."""
    if k <= 64 and is_static(x) and x.numel() * (x.shape[dim] if x.dim() else 1) > MAX_PAIRS:
        return NotImplemented
    return leading_of_sorted(x, k, dim, largest)


@decomposes(aten.topk.default)
def topk_unsorted(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return sorted elements where no order is asked for: the C++ lowerings support sorted ones only."""
    return NotImplemented if sorted else torch.topk(x, k, dim, largest, True)


@decomposes(aten.topk.default)
def topk_of_short_rows(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return the first ``k`` sorted elements and their indices of rows of up to 128 elements, as routers of experts."""
    size = x.shape[dim] if x.dim() else 1
    return leading_of_sorted(x, k, dim, largest) if isinstance(size, int) and size <= _SHORT else NotImplemented


_SHORT = 128


@decomposes(aten.kthvalue.default)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the k-th smallest value along ``dim``, counted from 1, and its index."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, indices = torch.sort(x, dim=dim)
    value, index = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))
