"""Rules of embedding, embedding_bag and embedding_renorm; the latter two by a mask of bags and indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits, masked_row_sums
from fx_importer.decompositions.indexing.scatter_reduce import masked_reduce
from fx_importer.fx_graph.operators import aten

Sums = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Returns the sums of the bags, from the mask ``[bags, number]``, the bag of each index, and the rows."""


def _embedding_bag(
    sums: Sums,
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
    number, width, kind = indices.shape[0], weight.shape[1], indices.dtype
    starts = offsets[:-1] if include_last_offset else offsets
    bags = starts.shape[0]
    if is_empty(indices) and not is_empty(starts):
        none = torch.zeros((bags,), dtype=kind)
        most = torch.zeros((bags, width), dtype=kind) if mode == 2 else none
        return torch.zeros((bags, width), dtype=weight.dtype), indices.clone(), none, most
    if not fits(bags, number, width if mode == 2 else 1) or is_empty(starts):
        return NotImplemented
    ends = torch.cat([starts[1:], torch.full((1,), number, dtype=offsets.dtype)])
    positions = torch.arange(number)
    inside = (positions >= starts.unsqueeze(-1)) & (positions < ends.unsqueeze(-1))  # [bags, number]
    bag = count(starts <= positions.unsqueeze(-1)) - 1
    if padding_idx is not None and padding_idx >= 0:
        inside = inside & (indices != padding_idx)
    size = count(inside)
    fast = _sums_fast(weight, mode, per_sample_weights, padding_idx)
    if fast and include_last_offset:
        inside = inside & (positions < offsets[-1:])
    rows = torch.index_select(weight, 0, indices)
    wide = torch.float32 if weight.dtype in HALF_DTYPES else weight.dtype
    if per_sample_weights is not None:
        rows = rows.to(wide) * per_sample_weights.to(wide).unsqueeze(-1)
    if mode == 2:  # eager starts with the first row of a bag, and takes what is larger: no other NaN counts
        begins = (inside & (positions == torch.amin(torch.where(inside, positions, number), 1, keepdim=True))).any(0)
        ignored = rows.isnan() & ~begins.unsqueeze(-1)
        rows = torch.where(ignored, torch.full((), -math.inf, dtype=rows.dtype), rows)
        result = masked_reduce(inside.transpose(0, 1).unsqueeze(0), rows.transpose(0, 1).unsqueeze(-1), None, "amax")
        result = result.transpose(0, 1)
        equal = (rows.unsqueeze(0) == result.unsqueeze(1)) | rows.isnan()  # [bags, number, width]
        largest = inside.unsqueeze(-1) & equal
        first = torch.amin(torch.where(largest, positions.unsqueeze(-1), number - 1), 1)
        most = indices.index_select(0, first.reshape(-1)).reshape(bags, width)
        most = torch.where((size > 0).unsqueeze(-1), most, torch.zeros((), dtype=kind))
    else:
        result = sums(inside, bag, rows).to(weight.dtype)
        if mode == 1:
            result = result / torch.clamp(size, min=1).to(result.dtype).unsqueeze(-1)
        size = size if mode == 1 else torch.zeros_like(size)
        most = size.to(kind)
    return result, (bag.narrow(0, 0, 0) if fast and mode == 0 else bag).to(kind), size.to(kind), most


@decomposes(aten.embedding_bag.padding_idx, aten._embedding_bag.default)
def embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, *settings: Any, **named: Any) -> Any:
    """Return the sum, the mean or the maximum (``mode`` 0, 1, 2) of the rows of each bag.

    The second result is the bag of each index (empty where eager has a shortcut), the third the sizes of the bags (for
    sums, zeros). The fourth is the row of ``weight`` that each maximum comes from, the first such of the bag; for
    means, it is the third result. The last bag has all the rest, but eager's fast sums end at the last offset.
    """
    return _embedding_bag(
        lambda inside, _, rows: masked_row_sums(inside, rows), weight, indices, offsets, *settings, **named
    )


@decomposes(aten.embedding_bag.padding_idx, aten._embedding_bag.default)
def embedding_bag_by_rows(weight: Tensor, indices: Tensor, offsets: Tensor, *settings: Any, **named: Any) -> Any:
    """Return `embedding_bag`, with one addition for each row instead of a product with the mask of bags."""
    return _embedding_bag(_sums_by_rows, weight, indices, offsets, *settings, **named)


def _sums_by_rows(inside: Tensor, bag: Tensor, rows: Tensor) -> Tensor:
    wide = torch.float32 if rows.dtype in HALF_DTYPES else rows.dtype
    selected = torch.where(inside.any(0).unsqueeze(-1), rows.to(wide), torch.zeros((), dtype=wide))
    zeros = torch.zeros((inside.shape[0], rows.shape[1]), dtype=wide)
    return torch.index_put(zeros, (torch.clamp(bag, min=0).to(torch.int64),), selected, accumulate=True)


@decomposes(aten._embedding_bag_forward_only.default)
def embedding_bag_forward_only(weight: Tensor, indices: Tensor, offsets: Tensor, *settings: Any, **named: Any) -> Any:
    """Return `embedding_bag`; for sums, the zeros of the third and the fourth result are one for each offset."""
    return _forward_only(embedding_bag.rule, weight, indices, offsets, *settings, **named)


@decomposes(aten._embedding_bag_forward_only.default)
def embedding_bag_forward_only_by_rows(
    weight: Tensor, indices: Tensor, offsets: Tensor, *settings: Any, **named: Any
) -> Any:
    """Return `embedding_bag_forward_only`, by `embedding_bag_by_rows`."""
    return _forward_only(embedding_bag_by_rows.rule, weight, indices, offsets, *settings, **named)


def _forward_only(
    rule: Callable[..., Any],
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    *settings: Any,
    **named: Any,
) -> Any:
    result = rule(weight, indices, offsets, scale_grad_by_freq, mode, *settings, **named)
    if result is NotImplemented or mode != 0 or is_empty(indices):
        return result
    zeros = torch.zeros_like(offsets, dtype=indices.dtype)
    return (*result[:2], zeros, zeros)


def _sums_fast(weight: Tensor, mode: int, per_sample_weights: Tensor | None, padding_idx: int | None) -> bool:
    """Return whether eager, on the CPU, sums rows by their offsets; then, for sums, without the bag of each index."""
    rows = [weight.stride(1), *([] if per_sample_weights is None else [per_sample_weights.stride(0)])]
    unpadded = padding_idx is None or padding_idx < 0
    contiguous = all(isinstance(row, int) and row == 1 for row in rows)
    return mode != 2 and unpadded and contiguous and weight.dtype in (torch.float32, *HALF_DTYPES)


@decomposes(aten.embedding.default)
def embedding_without_flags(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Look rows up without ``padding_idx`` and flags, which are about gradients."""
    has_flags = padding_idx != -1 or scale_grad_by_freq or sparse
    return aten.embedding(weight, indices) if has_flags else NotImplemented


@decomposes(aten.embedding_renorm.default)
def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    """Scale the rows that are looked up and are longer than ``max_norm`` to that norm; others stay."""
    number, places = weight.shape[0], indices.reshape(-1)
    if fits(number, places.shape[0]):
        named = count(torch.arange(number).unsqueeze(1) == places.unsqueeze(0)) > 0
    else:
        ones = torch.ones((places.shape[0],), dtype=torch.int32)
        named = torch.index_put(torch.zeros((number,), dtype=torch.int32), (places,), ones) > 0
    norm = torch.linalg.vector_norm(weight, norm_type, 1)
    scale = torch.where(named & (norm > max_norm), max_norm / (norm + 1e-7), torch.ones((), dtype=weight.dtype))
    return weight * scale.unsqueeze(1)


EMBEDDING_BAG = (embedding_bag, embedding_bag_forward_only, embedding_renorm)
EMBEDDING_BAG_BY_ROWS = (embedding_bag_by_rows, embedding_bag_forward_only_by_rows, embedding_renorm)
