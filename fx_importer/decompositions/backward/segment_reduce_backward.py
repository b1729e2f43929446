"""Gradients of ``segment_reduce``, and of ``masked_scatter`` with respect to its source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count
from fx_importer.decompositions.reduction.segment_reduce import inner_axes_merged, segment_mask
from fx_importer.fx_graph.operators import aten


@decomposes(aten._segment_reduce_backward.default)
def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Any:
    """Return the gradient: of the segment, shared among ties for extrema, times the other elements for products.

    As in eager, only a positive gradient is divided among ties.
    """
    hits = segment_mask(data, lengths, offsets, axis)
    if hits is None:
        return NotImplemented
    hits = hits.unsqueeze(-3)  # [..., 1, size, segments]
    x, zero = inner_axes_merged(data, axis), torch.zeros((), dtype=data.dtype)

    def spread(of_segments: Tensor) -> Tensor:
        return torch.sum(torch.where(hits, of_segments.unsqueeze(-2), zero), -1)

    def number(mask: Tensor) -> Tensor:
        return count(hits & mask.unsqueeze(-1), -2)

    gradient = inner_axes_merged(grad, axis)
    if reduce == "sum":
        result = spread(gradient)
    elif reduce == "mean":
        result = spread(gradient / torch.clamp(count(hits, -2), min=1).to(grad.dtype))
    elif reduce == "prod":
        result = spread(gradient) * _product_of_others(
            x, hits, spread, number, inner_axes_merged(output, axis), initial
        )
    else:
        result = inner_axes_merged(output, axis)
        largest = (x == spread(result)) | torch.isnan(x)
        share = gradient / torch.clamp(number(largest), min=1).to(grad.dtype)
        result = torch.where(largest, spread(torch.where(gradient > 0, share, gradient)), zero)
    return result.movedim(-1, axis).reshape(data.shape)


def _product_of_others(
    x: Tensor, hits: Tensor, spread: Any, number: Any, product: Tensor, initial: float | None
) -> Tensor:
    """Return for each element the product of the others of its segment, without dividing by zero or NaN."""
    zeros, nans = x == 0, torch.isnan(x)
    odd = zeros | nans
    one = torch.ones((), dtype=x.dtype)
    rest = torch.prod(torch.where(hits & ~odd.unsqueeze(-1), x.unsqueeze(-1), one), -2)
    rest = spread(rest if initial is None else rest * initial)
    more_zeros = spread(number(zeros).to(x.dtype)) > zeros.to(x.dtype)
    more_nans = spread(number(nans).to(x.dtype)) > nans.to(x.dtype)
    others = torch.where(more_nans, torch.nan, torch.where(more_zeros, rest * 0, rest))
    return torch.where(odd, others, spread(product) / torch.where(odd, one, x))


@decomposes(aten.masked_scatter_backward.default)
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Any:
    """Return the gradient of the source, whose k-th element was written where the mask is true for the k-th time."""
    if not is_static(grad, mask) or not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    flat = mask.expand(grad.shape).reshape(-1)
    number = math.prod(sizes)
    order = torch.cumsum(flat.to(torch.int64), 0) - 1
    places = torch.where(flat, order, torch.full_like(order, number))
    sums = torch.zeros((number + 1,), dtype=grad.dtype)
    return torch.scatter_add(sums, 0, places, grad.reshape(-1)).narrow(0, 0, number).reshape(list(sizes))
