"""Writes at several indices of which some are masks: a mask is the positions of its true elements, in order.

Their number is known at run time only. As many positions are made as it can be, and those beyond it write to one more
row of the target, which is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.kept_operators import is_user_kept
from fx_importer.decompositions.engine.local.rule_tracing import checking_operands
from fx_importer.decompositions.indexing.masked import put_by_mask, rank_of_slices, rows_by_rank, true_ranks
from fx_importer.fx_graph.operators import aten

Indices = Sequence[Tensor | None]


def has_masks(indices: Indices) -> bool:
    """Return whether an index is a boolean mask."""
    return any(index is not None and index.dtype == torch.bool for index in indices)


def put_by_masks(x: Tensor, indices: Indices, values: Tensor, accumulate: bool) -> Tensor:
    """Write, or add, at ``indices``, of which at least one is a mask."""
    for position, index in enumerate(indices):
        axis = sum(_rank(before) for before in indices[:position])
        if index is not None and index.dtype == torch.bool:
            with checking_operands():
                torch._check(index.shape == x.shape[axis : axis + index.dim()])
        if index is not None and index.dtype == torch.bool and not index.dim():  # indexes an axis of size 1 before it
            rank_one = [*indices[:position], index.reshape(1), *indices[position + 1 :]]
            return put_by_masks(x.unsqueeze(axis), rank_one, values, accumulate).squeeze(axis)
    tensors = [index for index in indices if index is not None]
    if len(tensors) == 1 and not is_user_kept():  # the C++ lowering of a mask writes one row at least
        axis = next(axis for axis, index in enumerate(indices) if index is not None)
        return put_by_mask(x, axis, tensors[0], values, accumulate)
    return _Picks.of(x, indices, values).written(x, values, accumulate)


def _rank(index: Tensor | None) -> int:
    """Return the number of axes that ``index`` indexes."""
    return index.dim() if index is not None and index.dtype == torch.bool else 1


@dataclass(frozen=True)
class _Picks:
    """The elements that indices pick together: rows of a tensor whose indexed ``axes`` come first, flattened."""

    axes: tuple[int, ...]
    first: int
    """The axis of the values where the axes of `rows` begin."""
    rows: Tensor
    """The row of each pick, int64; the number of rows for a pick beyond the last one, and more if out of range."""
    used: Tensor
    """Whether the indices pick an element at each position of the last axis of `rows`."""

    @classmethod
    def of(cls, x: Tensor, indices: Indices, values: Tensor) -> _Picks:
        starts = [sum(map(_rank, indices[:position])) for position in range(len(indices))]
        listed = [(start, index) for start, index in zip(starts, indices, strict=True) if index is not None]
        axes = tuple(axis for start, index in listed for axis in range(start, start + _rank(index)))
        adjacent = axes == tuple(range(axes[0], axes[-1] + 1))
        trailing = x.dim() - (axes[-1] + 1 if adjacent else len(axes))
        lengths = [_length(index) for _, index in listed]
        if values.dim() > trailing:
            lengths.append((values.shape[values.dim() - trailing - 1], False))
        exact = [size for size, is_bound in lengths if not is_bound and isinstance(size, int) and size != 1]
        length = exact[0] if exact else _largest([size for size, _ in lengths])
        counts = [_count(index) for _, index in listed]
        number = torch.stack(counts).amax()
        number = torch.where(torch.stack(counts).amin() == 0, torch.zeros_like(number), number)
        used = torch.arange(length) < number
        row: Any = 0
        fits: Any = torch.ones((), dtype=torch.bool)
        for (start, index), count in zip(listed, counts, strict=True):
            sizes = x.shape[start : start + _rank(index)]
            size = math.prod(sizes)
            place = _true_places(index, count, length) if index.dtype == torch.bool else _last_axis_of(index, length)
            place = place if index.dtype == torch.bool else torch.where(place < 0, place + size, place)
            fits = fits & (place >= 0) & (place < size) & ((count == number) | (count == 1))
            row = row * size + place
        total = math.prod(x.shape[axis] for axis in axes)
        row = torch.where(fits, row, torch.full((), total + 1, dtype=torch.int64))
        return cls(
            axes,
            axes[0] if adjacent else 0,
            torch.where(used, row, torch.full((), total, dtype=torch.int64)),
            used,
        )

    def written(self, x: Tensor, values: Tensor, accumulate: bool) -> Tensor:
        """Return ``x`` with ``values`` written, or added, at the picks."""
        others = [axis for axis in range(x.dim()) if axis not in self.axes]
        order = [*self.axes, *others]
        rest = [x.shape[axis] for axis in others]
        total, width = math.prod(x.shape[axis] for axis in self.axes), math.prod(rest)
        picked = list(self.rows.shape)
        last = self.first + len(picked) - 1
        values = values.reshape([1] * (len(rest) + len(picked) - values.dim()) + list(values.shape))
        number = values.shape[last]
        if not statically_known_true(number == 1) and not (isinstance(number, int) and number == picked[-1]):
            rank = rank_of_slices(torch.arange(picked[-1]), number)
            values = rows_by_rank(values, last, rank, self.used)
        values = values.expand([*rest[: self.first], *picked, *rest[self.first :]])
        middle = range(self.first, last + 1)
        values = values.permute([*middle, *(axis for axis in range(values.dim()) if axis not in middle)])
        flat = x.permute(order).reshape(total, width)
        dropped = torch.zeros((1, width), dtype=x.dtype)
        written = aten.index_put(
            torch.cat([flat, dropped]), [self.rows.reshape(-1)], values.reshape(math.prod(picked), width), accumulate
        )
        written = written.narrow(0, 0, total).reshape([x.shape[axis] for axis in order])
        return written.permute([order.index(axis) for axis in range(x.dim())])


def _length(index: Tensor) -> tuple[int, bool]:
    """Return the most elements that ``index`` has along the last axis of the picks, and whether they may be fewer."""
    if index.dtype == torch.bool:
        return index.numel(), True
    return (index.shape[-1] if index.dim() else 1), False


def _largest(sizes: Sequence[int]) -> Any:
    """Return the largest of ``sizes``, some of which may be symbolic."""
    result: Any = sizes[0]
    for size in sizes[1:]:
        result = torch.sym_max(result, size)
    return result


def _count(index: Tensor) -> Tensor:
    """Return the number of elements of ``index`` along the last axis of the picks, int64 of rank 0."""
    if index.dtype == torch.bool:
        return torch.sum(index.reshape(-1).to(torch.int64))
    return torch.full((), _length(index)[0], dtype=torch.int64)


def _last_axis_of(index: Tensor, length: int) -> Tensor:
    """Return ``index`` in int64, with a last axis of ``length``, or 1."""
    index = index.long()
    if not index.dim() or (isinstance(index.shape[-1], int) and index.shape[-1] in (1, length)):
        return index
    size = index.shape[-1]
    position = torch.arange(length)
    return rows_by_rank(
        index, index.dim() - 1, rank_of_slices(position, size), (position < size) | (_count(index) == 1)
    )


def _true_places(mask: Tensor, count: Tensor, length: int) -> Tensor:
    """Return the positions of the first ``length`` true elements of the flattened ``mask``, int64, then zeros.

    The position of a single true element is repeated, as it broadcasts.
    """
    flat = mask.reshape(-1)
    slot = torch.where(flat, true_ranks(mask), torch.full((), length, dtype=torch.int64))
    slot = torch.clamp(slot, max=length)
    places = torch.zeros((length + 1,), dtype=torch.int64)
    places = aten.index_put(places, [slot], torch.arange(flat.shape[0]))
    return torch.where(count == 1, places.narrow(0, 0, 1), places.narrow(0, 0, length))
