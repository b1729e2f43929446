"""Decompositions of ``unique`` and ``unique_consecutive``: of sorted elements, by ``nonzero`` of where runs begin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


def _equal_runs(x: Tensor, inverse: bool, counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first element of each run of equal elements of ``x`` (rank 1), each element's run, and run lengths.

    The second and third result are empty if not requested.
    """
    size = x.shape[0]
    edge = torch.ones((1,), dtype=torch.bool)
    changes = x[1:] != x[:-1]
    first = torch.cat([edge, changes])
    starts = aten.nonzero(first).squeeze(1)
    nothing = torch.zeros((0,), dtype=torch.int64)
    run = torch.cumsum(first.to(torch.int64), 0) - 1 if inverse else nothing
    if not counts:
        return x.index_select(0, starts), run, nothing
    place = torch.arange(size)
    # The next end of a run at or after each index.
    ends = torch.where(torch.cat([changes, edge]), place, torch.full_like(place, size))
    length = torch.cummin(ends.flip(0), 0)[0].flip(0) - place + 1
    return x.index_select(0, starts), run, length.index_select(0, starts)


@decomposes(aten.unique_consecutive.default)
def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return one element of each run of equal elements."""
    if dim is not None or is_empty(x):
        return NotImplemented
    values, run, lengths = _equal_runs(x.reshape(-1), return_inverse, return_counts)
    return values, run.reshape(x.shape) if return_inverse else run, lengths


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
    """As `unique`, without the counts: the gradients of fills are of such."""
    found = unique.rule(x, sorted, return_inverse)
    return found if found is NotImplemented else found[:2]


UNIQUE = (unique, unique_in_any_order, unique_consecutive)
