"""Writes at indices by comparing each place with each index: of several writes to one place, the last wins.

So it does in eager, unless that writes in parallel. TOSA's scatter writes each place once at most, and adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import chunks, fits, masked_row_sums, positions
from fx_importer.decompositions.indexing.scatter_reduce import aligned, gathered, leading_slice, replace_leading_slice
from fx_importer.fx_graph.operators import aten

Indices = Sequence[Tensor | None]


@dataclass(frozen=True)
class Places:
    """The places that indices name: rows of a tensor whose indexed ``axes`` come first, flattened."""

    axes: tuple[int, ...]
    picked: tuple[int, ...]
    """The shape that the indices have together."""
    first: int
    """The axis of the values where ``picked`` begins."""
    flat_index: Tensor
    """The row of each write, in int32; -1 where there is none, as for an index beyond its axis."""

    @classmethod
    def of(cls, x: Tensor, indices: Indices) -> Places:
        """Return the places of ``indices``, none of which is a mask."""
        axes = tuple(axis for axis, index in enumerate(indices) if index is not None)
        tensors = [index for index in indices if index is not None]
        adjacent = axes == tuple(range(axes[0], axes[-1] + 1))
        active = torch.ones((), dtype=torch.bool)
        row: Any = 0
        for axis, index in zip(axes, tensors, strict=True):
            active = active & (index >= -x.shape[axis]) & (index < x.shape[axis])
            row = row * x.shape[axis] + _nonnegative(index, x.shape[axis])
        picked = torch.broadcast_shapes(*(index.shape for index in tensors))
        row = torch.where(active, row, torch.full((), -1, dtype=torch.int32))
        return cls(axes, tuple(picked), axes[0] if adjacent else 0, row.expand(picked).reshape(-1))

    def _rest(self, x: Tensor) -> list[int]:
        return [axis for axis in range(x.dim()) if axis not in self.axes]

    def flat(self, x: Tensor) -> Tensor:
        """Return ``x`` as a matrix of rows."""
        return x.permute(*self.axes, *self._rest(x)).reshape(math.prod(x.shape[axis] for axis in self.axes), -1)

    def unflat(self, rows: Tensor, x: Tensor) -> Tensor:
        """Return a matrix of rows in the shape of ``x``."""
        order = [*self.axes, *self._rest(x)]
        return rows.reshape([x.shape[axis] for axis in order]).permute([order.index(axis) for axis in range(x.dim())])

    def rows_of(self, x: Tensor, values: Tensor) -> Tensor:
        """Return the row of each write."""
        rest = [x.shape[axis] for axis in self._rest(x)]
        values = values.expand([*rest[: self.first], *self.picked, *rest[self.first :]])
        middle = range(self.first, self.first + len(self.picked))
        order = [*middle, *(axis for axis in range(values.dim()) if axis not in middle)]
        return values.permute(order).reshape(math.prod(self.picked), -1)


def _nonnegative(index: Tensor, size: int) -> Tensor:
    """Return ``index`` in int32 with negative ones wrapped. The bounds show range analysis that it fits."""
    index = index.long()
    zero = torch.zeros((), dtype=torch.int64)
    wrapped = torch.where(index < 0, torch.minimum(index, zero) + size, index)
    return torch.clamp(wrapped, 0, size - 1).to(torch.int32)


def write_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor | None:
    """Return ``x`` [m, k] with ``rows`` [n, k] written at ``places`` [n], the last one where several are equal."""
    size, number = x.shape[0], rows.shape[0]
    if statically_known_true(number == 1):
        return torch.where((positions(size) == places).unsqueeze(1), rows, x)
    parts = chunks(number, size)
    if parts is None:
        return None
    last = torch.full((), -1, dtype=torch.int32)
    for start, end in parts:
        some = torch.arange(start, end, dtype=torch.int32)
        hits = positions(size).unsqueeze(1) == places[start:end].unsqueeze(0)
        coordinates = torch.amax(torch.where(hits, some, torch.full((), -1, dtype=torch.int32)), 1)
        last = torch.maximum(last, coordinates) if start else coordinates
    written = gathered(rows, 0, torch.clamp(last, min=0))
    return torch.where((last >= 0).unsqueeze(1), written, x)


def add_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor | None:
    """Return ``x`` [m, k] with ``rows`` [n, k] added at ``places`` [n]."""
    parts = chunks(rows.shape[0], x.shape[0] * (1 if x.is_floating_point() else x.shape[1]))
    for start, end in parts or ():
        hits = positions(x.shape[0]).unsqueeze(1) == places[start:end].unsqueeze(0)
        x = x + masked_row_sums(hits, rows[start:end])
    return None if parts is None else x


@decomposes(aten.scatter.src, aten.scatter.value)
def scatter(x: Tensor, dim: int, index: Tensor, source: Tensor | float) -> Any:
    """Write the elements of ``source``, or a number, to the positions along ``dim`` that ``index`` has."""
    if x.is_complex():
        return NotImplemented
    if is_empty(index) or is_empty(x):
        return x.clone()
    if not x.dim():
        source = source.reshape(1) if isinstance(source, Tensor) else source
        coordinates = scatter(x.reshape(1), 0, index.reshape(1), source)
        return coordinates if coordinates is NotImplemented else coordinates.reshape(())
    dim = dim % x.dim()
    if not index.dim():
        index, source = index.reshape(1), source.reshape(1) if isinstance(source, Tensor) else source
    size = x.shape[dim]
    if not fits(*index.shape, size):
        return NotImplemented
    index, sources, active = aligned(x, dim, index, *([source] if isinstance(source, Tensor) else []))
    number = index.shape[dim]
    shape = [size if axis == dim else length for axis, length in enumerate(index.shape)]
    target = leading_slice(x, shape).movedim(dim, -1)
    hits = index.movedim(dim, -1).unsqueeze(-2) == positions(size).unsqueeze(-1)  # [..., size, number]
    hits = hits if active is None else hits & active.movedim(dim, -1).unsqueeze(-2)
    if not isinstance(source, Tensor):
        written = torch.where(torch.any(hits, -1), torch.full((), source, dtype=x.dtype), target)
        return replace_leading_slice(x, written.movedim(-1, dim))
    last = torch.amax(torch.where(hits, positions(number), torch.full((), -1, dtype=torch.int32)), -1)
    selected = gathered(leading_slice(sources[0], index.shape).movedim(dim, -1), -1, torch.clamp(last, min=0))
    return replace_leading_slice(x, torch.where(last >= 0, selected, target).movedim(-1, dim))
