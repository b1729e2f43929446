"""Results whose size the values decide: all by one ``nonzero`` of a flat mask, which is what linalg lowers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits, positions
from fx_importer.fx_graph.operators import aten


def _selected(x: Tensor, axis: int, mask: Tensor) -> Tensor:
    """Return those slices of ``x`` along ``axis`` that a mask of rank 1 is true for."""
    return x.index_select(axis, aten.nonzero(mask).squeeze(1))


@decomposes(aten.index.Tensor)
def index_by_mask(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """A mask of several axes is one of a single axis: what it is true for becomes one axis anyway."""
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if len(given) != 1 or given[0][1].dtype != torch.bool or given[0][1].dim() == 0:
        return NotImplemented
    axis, mask = given[0]
    return _selected(x.flatten(axis, axis + mask.dim() - 1), axis, mask.reshape(-1))


@decomposes(aten.masked_select.default)
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements that a mask is true for."""
    x, mask = torch.broadcast_tensors(x, mask)
    return _selected(x.reshape(-1), 0, mask.reshape(-1))


@decomposes(aten.masked_scatter.default)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """``x`` with the elements of ``source``, one after the other, where a mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    if is_empty(source) or is_empty(x):
        return x.clone()
    place = torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1
    elements = source.reshape(-1)
    if not is_static(source):  # which may have none: one is read all the same
        elements = torch.cat([elements, torch.zeros((1,), dtype=source.dtype)])
    taken = elements.index_select(0, torch.clamp(place, min=0))
    return torch.where(mask, taken.reshape(x.shape), x)


@decomposes(aten.combinations.default)
def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """Of one element each. Of more, torch.export loses count of how many there are."""
    return x.unsqueeze(1) if r == 1 else NotImplemented


@decomposes(aten.nonzero.default)
def nonzero(x: Tensor) -> Any:
    """Of rank zero: one row without a column, or none."""
    return aten.nonzero(x.reshape(1))[:, :0] if x.dim() == 0 else NotImplemented


def _runs(x: Tensor, inverse: bool, counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return one element of each run of equal ones in ``x`` of rank 1, the run of each element, and the runs' lengths.

    The second and third are empty where they are not asked for.
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
    # The next end at or after each place.
    ends = torch.where(torch.cat([changes, edge]), place, torch.full_like(place, size))
    length = torch.cummin(ends.flip(0), 0)[0].flip(0) - place + 1
    return x.index_select(0, starts), run, length.index_select(0, starts)


@decomposes(aten.unique_consecutive.default)
def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """One element of each run of equal ones."""
    if dim is not None or is_empty(x):
        return NotImplemented
    values, run, lengths = _runs(x.reshape(-1), return_inverse, return_counts)
    return values, run.reshape(x.shape) if return_inverse else run, lengths


@decomposes(aten._unique2.default)
def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """One of equal elements, in order."""
    if is_empty(x):
        return NotImplemented
    flat = x.reshape(-1)
    ordered, order = torch.sort(flat.to(torch.int32) if x.dtype == torch.bool else flat)
    values, run, lengths = _runs(ordered, return_inverse, return_counts)
    if return_inverse:
        run = torch.zeros_like(run).scatter(0, order, run).reshape(x.shape)
    return values.to(x.dtype), run, lengths


@decomposes(aten._unique.default)
def unique_in_any_order(x: Tensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    """As `unique`, without the counts: the gradients of fills are of such."""
    found = unique.rule(x, sorted, return_inverse)
    return found if found is NotImplemented else found[:2]


@decomposes(aten.nonzero_static.default)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The first ``size`` places that are not zero, and ``fill_value`` for those that there are not."""
    if not isinstance(size, int) or not fits(x.numel(), size) or is_empty(x) or not x.dim() or not size:
        return NotImplemented
    up_to = torch.cumsum((x.reshape(-1) != 0).to(torch.int32), 0, dtype=torch.int32)
    number = positions(size)
    place = count(up_to <= number.unsqueeze(-1)).to(torch.int64)
    columns: list[Tensor] = []
    for length in reversed(x.shape):
        columns.insert(0, torch.remainder(place, length))
        place = torch.div(place, length, rounding_mode="floor")
    there = (number < up_to[-1]).unsqueeze(-1)
    return torch.where(there, torch.stack(columns, 1), torch.full((), fill_value, dtype=torch.int64))


@decomposes(aten.repeat_interleave.Tensor)
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """Each number as often as ``repeats`` says at its place, where it is known how many that makes."""
    if not isinstance(output_size, int) or is_empty(repeats):
        return NotImplemented
    return torch.searchsorted(torch.cumsum(repeats, 0), torch.arange(output_size), right=True)


OF_KNOWN_SIZE = (combinations, nonzero_static, repeat_interleave)

SELECTING = (
    *(index_by_mask, masked_select, nonzero),
    *(unique, unique_in_any_order, unique_consecutive),
)
"""For linalg, whose tensors may be of any size."""
