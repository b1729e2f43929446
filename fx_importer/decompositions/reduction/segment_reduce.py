"""Rule of segment_reduce, by a mask of elements and segments."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits
from fx_importer.decompositions.indexing.scatter_reduce import masked_reduce
from fx_importer.fx_graph.operators import aten


def segment_mask(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> Tensor | None:
    """Return [..., size, segments]: whether an index along ``axis`` is in a segment.

    None if neither lengths nor offsets are given, or the mask would be too large.
    """
    boundaries = lengths if offsets is None else offsets
    if boundaries is None:
        return None
    if offsets is None:
        ends = torch.cumsum(boundaries, -1)
        starts = ends - boundaries
    else:
        starts, ends = offsets.narrow(-1, 0, offsets.shape[-1] - 1), offsets.narrow(-1, 1, offsets.shape[-1] - 1)
    if not fits(data.numel(), starts.shape[-1]) or is_empty(data):
        return None
    positions = torch.arange(data.shape[axis]).unsqueeze(-1)
    return (positions >= starts.unsqueeze(-2)) & (positions < ends.unsqueeze(-2))


def inner_axes_merged(x: Tensor, axis: int) -> Tensor:
    """Return [..., inner, size]: ``x`` with ``axis`` last, and the axes behind it merged."""
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
    """Reduce consecutive segments of an axis, given by their lengths or by their offsets."""
    if indices is not None or (hits := segment_mask(data, lengths, offsets, axis)) is None:
        return NotImplemented
    inner, segments = data.shape[axis + 1 :], hits.shape[-1]
    rows = inner_axes_merged(data, axis)
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
