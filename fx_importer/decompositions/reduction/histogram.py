"""Histograms, segments and bags: what a mask of members against groups counts or reduces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits, positions, sums
from fx_importer.decompositions.indexing.scatter_reduce import masked_reduce
from fx_importer.decompositions.sort.searchsorted import searchsorted
from fx_importer.fx_graph.operators import aten


def _tally(bins: Tensor, number: int, weights: Tensor) -> Tensor:
    """Return the sum of ``weights`` for each of ``number`` bins; a bin that is out of range counts nowhere."""
    hits = bins.reshape(1, -1) == positions(number).unsqueeze(-1)
    return sums(hits, weights.reshape(-1, 1)).reshape(number)


def _limits(x: Tensor, low: float, high: float, beyond: float) -> tuple[Tensor, Tensor]:
    """Return both ends of a histogram's range: of ``x`` itself where they are the same, and ``beyond`` a lone value."""
    if low == high:
        first, last = torch.amin(x), torch.amax(x)
    else:
        first, last = torch.full((), low, dtype=x.dtype), torch.full((), high, dtype=x.dtype)
    one = first == last
    return torch.where(one, first - beyond, first), torch.where(one, last + beyond, last)


@decomposes(aten.histc.default)
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many elements lie in each of ``bins`` intervals of the same width."""
    if not fits(x.numel(), bins) or is_empty(x) or not x.is_floating_point():
        return NotImplemented
    flat = x.reshape(-1)
    low, high = _limits(flat, min, max, 1)
    inside = (flat >= low) & (flat <= high)
    place = torch.clamp(torch.floor((flat - low) * bins / (high - low)), max=bins - 1)
    # Bins are small numbers: comparing them in floating point is exact.
    hits = (place == torch.arange(bins, dtype=x.dtype).unsqueeze(-1)) & inside
    return count(hits).to(x.dtype)


def _histogram(x: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> tuple[Tensor, Tensor]:
    """Count between ``edges``; the last of them is inside."""
    flat = x.reshape(-1)
    bins = edges.shape[0] - 1
    place = searchsorted(edges, flat, right=True) - 1
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    place = torch.where(inside, torch.clamp(place, max=bins - 1), torch.full_like(place, -1))
    weights = torch.ones_like(flat) if weight is None else weight.reshape(-1)
    result = _tally(place, bins, weights)
    if density:
        result = result / torch.sum(result) / (edges[1:] - edges[:-1])
    return result, edges


@decomposes(aten.histogram.bins_tensor)
def histogram_between(x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    """How many elements lie between any two of ``bins``."""
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
    """How many elements lie in each of ``bins`` intervals of the same width, and where these end."""
    if not fits(x.numel(), bins) or is_empty(x):
        return NotImplemented
    return _histogram(x, _edges(x.reshape(-1), bins, *(range or (0, 0))), weight, density)


def _edges(x: Tensor, bins: int, low: float, high: float) -> Tensor:
    """Return the ends of the intervals, from both sides, as ``linspace`` does."""
    first, last = _limits(x, low, high, 0.5)
    step = (last - first) / bins
    place = torch.arange(bins + 1, dtype=x.dtype)
    return torch.where(place < (bins + 1) // 2, first + step * place, last - step * (bins - place))


def segments_of(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> Tensor | None:
    """Return [..., size, segments]: whether a place along ``axis`` is in a segment; None of too many, or not known."""
    given = lengths if offsets is None else offsets
    if given is None:
        return None
    if offsets is None:
        ends = torch.cumsum(given, -1)
        starts = ends - given
    else:
        starts, ends = offsets.narrow(-1, 0, offsets.shape[-1] - 1), offsets.narrow(-1, 1, offsets.shape[-1] - 1)
    if not fits(data.numel(), starts.shape[-1]) or is_empty(data):
        return None
    place = torch.arange(data.shape[axis]).unsqueeze(-1)
    return (place >= starts.unsqueeze(-2)) & (place < ends.unsqueeze(-2))


def last_axis(x: Tensor, axis: int) -> Tensor:
    """Return [..., inner, size]: ``x`` with ``axis`` last, and those behind it as one."""
    return x.reshape(*x.shape[: axis + 1], math.prod(x.shape[axis + 1 :])).movedim(-1, axis)


@decomposes(aten.segment_reduce.default)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Reduce segments of an axis, one after the other: given by their lengths, or by where they begin and end."""
    if indices is not None or (hits := segments_of(data, lengths, offsets, axis)) is None:
        return NotImplemented
    inner, segments = data.shape[axis + 1 :], hits.shape[-1]
    rows = last_axis(data, axis)
    kind = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    empty = {"sum": 0.0, "prod": 1.0, "mean": math.nan, "amax": -math.inf, "amin": math.inf}[kind]
    if initial is None:
        result = masked_reduce(hits.unsqueeze(-3), rows.unsqueeze(-1), None, kind, empty=empty)
    else:
        target = torch.full((), initial, dtype=data.dtype)
        result = masked_reduce(hits.unsqueeze(-3), rows.unsqueeze(-1), target, "sum" if kind == "mean" else kind)
        if kind == "mean":
            number = count(hits, -2).unsqueeze(-2)
            result = torch.where(number > 0, result / torch.clamp(number, min=1).to(data.dtype), result)
    return result.movedim(-1, axis).reshape(*data.shape[:axis], segments, *inner)


@decomposes(aten.embedding_bag.padding_idx, aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """The sum, the mean or the maximum (``mode`` 0, 1, 2) of the rows of each bag.

    The second and third result are each index's bag, unless eager has a shortcut, and the sizes of the bags; the
    fourth, which only the gradient of maxima reads, which row each of them is of: the first such of the bag.
    """
    if is_empty(indices):
        return NotImplemented
    number, width, kind = indices.shape[0], weight.shape[1], indices.dtype
    starts = offsets[:-1] if include_last_offset else offsets
    bags = starts.shape[0]
    if not fits(bags, number, width if mode == 2 else 1) or is_empty(starts):
        return NotImplemented
    last = offsets[-1:] if include_last_offset else torch.full((1,), number, dtype=offsets.dtype)
    ends = torch.cat([starts[1:], last])
    place = torch.arange(number)
    inside = (place >= starts.unsqueeze(-1)) & (place < ends.unsqueeze(-1))  # [bags, number]
    bag = count(starts <= place.unsqueeze(-1)) - 1
    if padding_idx is not None and padding_idx >= 0:
        inside = inside & (indices != padding_idx)
    size = count(inside)
    rows = torch.index_select(weight, 0, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if mode == 2:
        result = masked_reduce(inside.transpose(0, 1).unsqueeze(0), rows.transpose(0, 1).unsqueeze(-1), None, "amax")
        result = result.transpose(0, 1)
        largest = inside.unsqueeze(-1) & (rows.unsqueeze(0) == result.unsqueeze(1))  # [bags, number, width]
        first = torch.amin(torch.where(largest, place.unsqueeze(-1), number - 1), 1)
        most = indices.index_select(0, first.reshape(-1)).reshape(bags, width)
        most = torch.where((size > 0).unsqueeze(-1), most, torch.zeros((), dtype=kind))
    else:
        result = sums(inside, rows)
        if mode == 1:
            result = result / torch.clamp(size, min=1).to(result.dtype).unsqueeze(-1)
        most = torch.zeros((bags,), dtype=kind)
    if _has_shortcut(weight, mode, per_sample_weights, padding_idx):
        bag = bag.narrow(0, 0, 0)
    return result, bag.to(kind), size.to(kind), most


def _has_shortcut(weight: Tensor, mode: int, per_sample_weights: Tensor | None, padding_idx: int | None) -> bool:
    """Whether eager, on the CPU, does without the bag of each index, as the type of its result then says."""
    rows = [weight.stride(1), *([] if per_sample_weights is None else [per_sample_weights.stride(0)])]
    unpadded = padding_idx is None or padding_idx < 0
    return mode == 0 and unpadded and set(rows) == {1} and weight.dtype in (torch.float32, torch.float16)


@decomposes(aten.embedding_renorm.default)
def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    """Rows that are looked up, and are longer than ``max_norm``, become as long as that; others stay."""
    if not is_static(weight, indices) or not fits(weight.shape[0], indices.numel()):
        return NotImplemented
    named = count(torch.arange(weight.shape[0]).unsqueeze(1) == indices.reshape(1, -1)) > 0
    norm = torch.linalg.vector_norm(weight, norm_type, 1)
    scale = torch.where(named & (norm > max_norm), max_norm / (norm + 1e-7), torch.ones((), dtype=weight.dtype))
    return weight * scale.unsqueeze(1)


@decomposes(aten.bincount.default)
def bincount_of_small_integers(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """As of 64 bits."""
    return NotImplemented if x.dtype == torch.int64 else torch.bincount(x.long(), weights, minlength)


COUNTING = (histc, histogram, histogram_between, segment_reduce, embedding_bag, embedding_renorm)
