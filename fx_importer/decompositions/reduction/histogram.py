"""Rules of histc, histogram and bincount, by masks of elements and bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits, masked_row_sums, positions
from fx_importer.decompositions.sort.searchsorted import searchsorted
from fx_importer.fx_graph.operators import aten


def _weighted_bincount(bins: Tensor, number: int, weights: Tensor) -> Tensor:
    """Return the sum of ``weights`` for each of ``number`` bins; bins out of range are ignored."""
    hits = bins.reshape(1, -1) == positions(number).unsqueeze(-1)
    return masked_row_sums(hits, weights.reshape(-1, 1)).reshape(number)


def _range_limits(x: Tensor, low: float, high: float, beyond: float) -> tuple[Tensor, Tensor]:
    """Return both ends of a histogram's range.

    If ``low == high``, the range is from the minimum to the maximum of ``x``. Where it is empty, it is widened by
    ``beyond`` on both sides.
    """
    if low == high:
        first, last = torch.amin(x), torch.amax(x)
    else:
        first, last = torch.full((), low, dtype=x.dtype), torch.full((), high, dtype=x.dtype)
    one = first == last
    return torch.where(one, first - beyond, first), torch.where(one, last + beyond, last)


@decomposes(aten.histc.default)
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Return how many elements lie in each of ``bins`` intervals of equal width."""
    if is_empty(x):
        return torch.zeros(bins, dtype=x.dtype)
    if not fits(x.numel(), bins) or not x.is_floating_point():
        return NotImplemented
    flat = x.reshape(-1)
    low, high = _range_limits(flat, min, max, 1)
    inside = (flat >= low) & (flat <= high)
    bin_ = torch.clamp(torch.floor((flat - low) * bins / (high - low)), max=bins - 1)
    # Bin numbers are small: comparing them in floating point is exact.
    hits = (bin_ == torch.arange(bins, dtype=x.dtype).unsqueeze(-1)) & inside
    return count(hits).to(x.dtype)


def _histogram(x: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> tuple[Tensor, Tensor]:
    """Return the histogram with these ``edges``; the last one is inclusive."""
    flat = x.reshape(-1)
    bins = edges.shape[0] - 1
    bin_ = searchsorted(edges, flat, right=True) - 1
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    bin_ = torch.where(inside, torch.clamp(bin_, max=bins - 1), torch.full_like(bin_, -1))
    weights = torch.ones_like(flat) if weight is None else weight.reshape(-1)
    result = _weighted_bincount(bin_, bins, weights)
    if density:
        result = result / torch.sum(result) / (edges[1:] - edges[:-1])
    return result, edges


@decomposes(aten.histogram.bins_tensor)
def histogram_bins_tensor(x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    """Return how many elements lie between consecutive edges."""
    if not fits(x.numel(), bins.numel()):
        return NotImplemented
    return _histogram(x, bins, weight, density)


@decomposes(aten.histogram.bin_ct)
def histogram(
    x: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """Return how many elements lie in each of ``bins`` intervals of equal width, and the edges."""
    if not fits(x.numel(), bins) or is_empty(x):
        return NotImplemented
    return _histogram(x, _uniform_edges(x.reshape(-1), bins, *(range or (0, 0))), weight, density)


def _uniform_edges(x: Tensor, bins: int, low: float, high: float) -> Tensor:
    """Return the edges of equal intervals, computed from both ends, as ``linspace`` does."""
    first, last = _range_limits(x, low, high, 0.5)
    step = (last - first) / bins
    index = torch.arange(bins + 1, dtype=x.dtype)
    return torch.where(index < (bins + 1) // 2, first + step * index, last - step * (bins - index))


HISTOGRAMS = (histc, histogram, histogram_bins_tensor)


@decomposes(aten.bincount.default)
def weighted_bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """Return the sum of the weights of each integer, as many as the largest one has; no match without weights."""
    if weights is None or is_empty(x):
        return NotImplemented
    x = x.long()
    number: Any = torch.clamp(x.max() + 1, min=minlength).item()
    torch._check(number >= 0)
    kind = torch.float32 if weights.dtype == torch.float32 else torch.float64
    return torch.zeros(number, dtype=kind).index_add(0, x, weights.to(kind))


@decomposes(aten.bincount.default)
def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """Count in int64."""
    return NotImplemented if x.dtype == torch.int64 else torch.bincount(x.long(), weights, minlength)
