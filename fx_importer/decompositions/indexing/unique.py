"""Decompositions of ``unique`` and ``unique_consecutive``: of sorted elements, by ``nonzero`` of where runs begin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import positions
from fx_importer.decompositions.reduction.cumulative import cummin
from fx_importer.fx_graph.operators import aten


def _equal_runs(x: Tensor, inverse: bool, counts: bool, dim: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first slice of each run of equal slices of ``x`` along ``dim``, each slice's run, and run lengths.

    The second and third result are empty if not requested.
    """
    size = x.shape[dim]
    places = positions(size)

    def differs(neighbours: Tensor) -> Tensor:
        changes = x != x.index_select(dim, neighbours)  # which takes no slice of none, where values decide the size
        return changes.transpose(0, dim).flatten(1).any(1) if x.dim() > 1 else changes

    first = (places == 0) | differs((places - 1).clamp(min=0))
    starts = aten.nonzero(first).squeeze(1)
    nothing = torch.zeros((0,), dtype=torch.int64)
    run = torch.cumsum(first.to(torch.int64), 0) - 1 if inverse else nothing
    if not counts:
        return x.index_select(dim, starts), run, nothing
    # The next end of a run at or after each index.
    is_end = (places == size - 1) | differs((places + 1).clamp(max=size - 1))
    ends = torch.where(is_end, places, torch.full_like(places, size))
    length = cummin.rule(ends.flip(0), 0)[0].flip(0) - places + 1
    return x.index_select(dim, starts), run, length.index_select(0, starts).to(torch.int64)


@decomposes(aten.unique_consecutive.default)
def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return one element of each run of equal elements, or one slice of those along ``dim``."""
    if is_empty(x):
        return NotImplemented
    if dim is not None and x.dim():
        return _equal_runs(x, return_inverse, return_counts, dim % x.dim())
    values, run, lengths = _equal_runs(x.reshape(-1), return_inverse, return_counts)
    return values, run.reshape(x.shape) if return_inverse else run, lengths


@decomposes(aten.unique_dim_consecutive.default)
def unique_dim_consecutive(x: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """As `unique_consecutive` along ``dim``."""
    return unique_consecutive.rule(x, return_inverse, return_counts, dim)


@decomposes(aten._unique2.default)
def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """Return the distinct elements, sorted."""
    if is_empty(x):
        return NotImplemented
    flat = x.reshape(-1)
    ordered, order = torch.sort(flat.to(torch.int32) if x.dtype == torch.bool else flat)
    values, run, lengths = _equal_runs(ordered, return_inverse, return_counts)
    if return_inverse:
        run = torch.zeros_like(run).scatter(0, order, run).reshape(x.shape)
    return values.to(x.dtype), run, lengths


@decomposes(aten._unique.default)
def unique_in_any_order(x: Tensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    """Return `unique` without the counts, as gradients of fills need it."""
    result = unique.rule(x, sorted, return_inverse)
    return result if result is NotImplemented else result[:2]


UNIQUE = (unique, unique_in_any_order, unique_consecutive, unique_dim_consecutive)
