"""Rules of topk and kthvalue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.sort.sorting import MAX_PAIRS, leading_of_sorted
from fx_importer.fx_graph.operators import aten


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
