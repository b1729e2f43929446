"""Sorting for a target that has no sort, and running products.

Short rows count, for each element, those that come before it: all pairs are compared at once. Longer ones go through a
bitonic network (Batcher, "Sorting networks and their applications", 1968). Equal elements keep their order, and not a
number is greater than any, as in torch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, positions
from fx_importer.decompositions.sort.searchsorted import scan
from fx_importer.fx_graph.operators import aten


def _ordered(x: Tensor, kept: int, dim: int, descending: bool) -> Any:
    """Return the first ``kept`` of ``x`` in order along ``dim``, and where they were."""
    if not is_static(x):
        return NotImplemented
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    if size == 1:  # of such the C++ lowering of the comparison of all pairs ends in an invalid reshape
        return x.narrow(dim, 0, kept).clone(), torch.zeros_like(x.narrow(dim, 0, kept), dtype=torch.int64)
    if x.numel() == 0 or size > LONGEST:
        return NotImplemented
    rows = x.movedim(dim, -1)
    keys = rows.to(torch.int32) if x.dtype == torch.bool else rows
    if x.numel() * size <= FEW:
        order = _by_counting(keys, kept, descending)
    else:
        order = _by_network(keys, descending).narrow(-1, 0, kept)
    indices = order.to(torch.int64)
    return rows.gather(-1, indices).movedim(-1, dim), indices.movedim(-1, dim)


FEW = 1 << 22
"""The number of pairs that are compared at once."""
LONGEST = 1 << 16
"""The length of the longest row that is sorted."""


def _by_counting(keys: Tensor, kept: int, descending: bool) -> Tensor:
    place = positions(keys.shape[-1])
    later = _comes_after(keys.unsqueeze(-1), keys.unsqueeze(-2), place.unsqueeze(-1), place, descending)
    here = count(later).unsqueeze(-2) == positions(kept).unsqueeze(-1)
    return torch.sum(torch.where(here, place, torch.zeros_like(place)), -1, dtype=torch.int32)


def _comes_after(a: Tensor, b: Tensor, place_a: Tensor, place_b: Tensor, descending: bool) -> Tensor:
    """Return where ``a`` comes after ``b``: a total order, since no two places are the same."""
    after, same = (a < b if descending else a > b), a == b
    if a.is_floating_point():
        nan_a, nan_b = a != a, b != b
        after = after | (nan_b & ~nan_a if descending else nan_a & ~nan_b)
        same = same | (nan_a & nan_b)
    return after | (same & (place_a > place_b))


def _by_network(keys: Tensor, descending: bool) -> Tensor:
    size, rows = keys.shape[-1], keys.shape[:-1]
    full = 1 << (size - 1).bit_length()
    pad = torch.full((*rows, full - size), _last(keys.dtype, descending), dtype=keys.dtype)
    keys = torch.cat([keys, pad], -1)
    places = positions(full).expand(keys.shape)
    run = 2
    while run <= full:
        distance = run // 2
        while distance:
            blocks = full // (2 * distance)
            halves = [each.reshape(*rows, blocks, 2, distance) for each in (keys, places)]
            (a, b), (place_a, place_b) = ((each.select(-2, 0), each.select(-2, 1)) for each in halves)
            upward = ((positions(blocks) * (2 * distance)) & run).reshape(blocks, 1) == 0
            swap = _comes_after(a, b, place_a, place_b, descending) == upward
            keys = torch.stack([torch.where(swap, b, a), torch.where(swap, a, b)], -2).reshape(*rows, full)
            swapped = [torch.where(swap, place_b, place_a), torch.where(swap, place_a, place_b)]
            places = torch.stack(swapped, -2).reshape(*rows, full)
            distance //= 2
        run *= 2
    return places.narrow(-1, 0, size)


def _last(dtype: torch.dtype, descending: bool) -> float:
    """Return a value that nothing of ``dtype`` comes after."""
    if dtype.is_floating_point:
        return -math.inf if descending else math.nan
    return torch.iinfo(dtype).min if descending else torch.iinfo(dtype).max


@decomposes(aten.sort.default)
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """All elements in order, and where they were."""
    return _ordered(x, x.shape[dim] if x.dim() else 1, dim, descending)


@decomposes(aten.sort.stable)
def stable_sort(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """The same: equal elements keep their order anyway."""
    return sort(x, dim, descending)


@decomposes(aten.topk.default)
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The first ``k`` elements in order, and where they were. The C++ lowering looks for one after the other."""
    if k <= 64 and is_static(x) and x.numel() * (x.shape[dim] if x.dim() else 1) > FEW:
        return NotImplemented
    return _ordered(x, k, dim, largest)


@decomposes(aten.cumprod.default)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """The products of all elements up to each."""
    kind = dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    x = x.to(wide)
    if x.dim() == 0:
        return x.to(kind)
    return scan((x,), dim, lambda before, after: (before[0] * after[0],))[0].to(kind)


SORTING = (sort, stable_sort, topk, cumprod)
