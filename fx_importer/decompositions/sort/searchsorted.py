"""Rules of searchsorted, bucketize and isin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits
from fx_importer.fx_graph.operators import aten

MAX_COMPARISONS = 1 << 18
"""Largest number of comparisons made at once; beyond, a binary search."""


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
    """Return how many elements of each row of ``ordered`` come before each of ``x``."""
    x = x if isinstance(x, Tensor) else torch.full((), x, dtype=torch.result_type(ordered, x))
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    right = right or side == "right"
    size = ordered.shape[-1]
    kind = torch.int32 if out_int32 else torch.int64
    values = x.reshape(1) if x.dim() == 0 else x
    if not isinstance(size, int) or (is_static(values) and size * values.numel() <= MAX_COMPARISONS):
        row = ordered.unsqueeze(-2)
        column = values.unsqueeze(-1)
        result = count(~(row > column if right else row >= column))
    else:
        result = _binary_search(ordered, values, right)
    return result.reshape(x.shape).to(kind)


def _binary_search(ordered: Tensor, x: Tensor, right: bool) -> Tensor:
    """Search by setting the bits of the results, the highest first, as long as the element is before ``x``."""
    size = ordered.shape[-1]
    result = torch.zeros_like(x, dtype=torch.int64)
    for digit in reversed(range(size.bit_length())):
        tried = result + (1 << digit)
        last = torch.clamp(tried, max=size) - 1
        at = ordered.gather(-1, last) if ordered.dim() > 1 else ordered[last]
        before = ~(at > x if right else at >= x) & (tried <= size)
        result = torch.where(before, tried, result)
    return result


@decomposes(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(x: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    """Return the index of the interval between ``boundaries`` that each of ``x`` lies in."""
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@decomposes(aten.isin.Tensor_Tensor)
def isin(elements: Tensor, others: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return whether each of ``elements`` is among ``others``."""
    if not fits(elements.numel(), others.numel()):
        return NotImplemented
    result = count(elements.unsqueeze(-1) == others.reshape(-1)) > 0
    return ~result if invert else result


SEARCHES = (searchsorted, bucketize, isin)
