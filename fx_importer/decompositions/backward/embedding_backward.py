"""Gradients of embeddings: each row's gradient is the sum over the positions where it was looked up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits
from fx_importer.fx_graph.operators import aten

_SUM, _MEAN, _MAX = 0, 1, 2
"""Modes of ``embedding_bag``."""


def _sum_by_index(rows: Tensor, indices: Tensor, number: int) -> Tensor:
    """Return [number, width], the sums of ``rows``, [n, width], by their ``indices``, [n]."""
    zeros = torch.zeros((number, rows.shape[1]), dtype=rows.dtype)
    return aten.index_put(zeros, [indices], rows, True)


def _frequencies(indices: Tensor, number: int) -> Tensor:
    """Return for each of ``indices`` how often it occurs."""
    zeros = torch.zeros((number,), dtype=torch.int32)
    return aten.index_put(zeros, [indices], torch.ones_like(indices, dtype=torch.int32), True).index_select(0, indices)


@decomposes(aten.embedding_dense_backward.default)
def embedding_dense_backward(grad: Tensor, indices: Tensor, number: int, padding_idx: int, scale: bool) -> Tensor:
    """Return the gradient of the weight; with ``scale``, divided by how often each row was looked up."""
    rows, flat = grad.reshape(-1, grad.shape[-1]), indices.reshape(-1)
    if padding_idx >= 0:
        rows = torch.where((flat == padding_idx).unsqueeze(1), torch.zeros((), dtype=rows.dtype), rows)
    if scale:
        rows = rows / _frequencies(flat, number).to(rows.dtype).unsqueeze(1)
    return _sum_by_index(rows, flat, number)


def _bag_of_each_index(indices: Tensor, offsets: Tensor, offset2bag: Tensor) -> Tensor:
    """Return the bag of each index: ``offset2bag``, or, if that is empty, by the ``offsets`` that bags begin at."""
    return offset2bag if offset2bag.shape[0] else count(offsets <= torch.arange(indices.shape[0]).unsqueeze(-1)) - 1


@decomposes(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    number: int,
    scale: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """Return the gradient of the weight. The arguments give bags, their sizes and the indices of maxima."""
    if not is_static(grad, indices, offsets, offset2bag) or not fits(indices.shape[0], offsets.shape[0]):
        return NotImplemented
    if mode == _MAX:
        kept = torch.where((bag_size > 0).unsqueeze(1), grad, torch.zeros((), dtype=grad.dtype))
        zeros = torch.zeros((number, grad.shape[1]), dtype=grad.dtype)
        return torch.scatter_add(zeros, 0, maximum_indices.to(torch.int64), kept)
    bags = _bag_of_each_index(indices, offsets, offset2bag)
    rows = grad.index_select(0, bags)
    kept = indices != padding_idx
    if mode == _MEAN:
        sizes = torch.where(bag_size == 0, torch.ones_like(bag_size), bag_size)
        rows = rows / sizes.index_select(0, bags).to(rows.dtype).unsqueeze(1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    rows = torch.where(kept.unsqueeze(1), rows, torch.zeros((), dtype=rows.dtype))
    if scale:
        rows = rows / _frequencies(indices, number).to(rows.dtype).unsqueeze(1)
    return _sum_by_index(rows, indices, number)


@decomposes(aten._embedding_bag_per_sample_weights_backward.default)
def per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    """Return the dot products of each bag's gradient with the rows that were looked up. Other modes raise in eager."""
    fit = is_static(grad, indices, offsets, offset2bag) and fits(indices.shape[0], offsets.shape[0])
    if mode != _SUM or not fit:
        return NotImplemented
    rows = grad.index_select(0, _bag_of_each_index(indices, offsets, offset2bag))
    result = torch.sum(rows * weight.index_select(0, indices), 1)
    return torch.where(indices != padding_idx, result, torch.zeros((), dtype=result.dtype))


EMBEDDING_BACKWARD = (embedding_dense_backward, embedding_bag_backward, per_sample_weights_backward)
