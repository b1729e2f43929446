"""Decomposition of split_with_sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import SymInt, Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.split_with_sizes.default)
def split_with_sizes(x: Tensor, sizes: Sequence[int | SymInt], dim: int = 0) -> Any:
    """Return slices, the last one with an open end, if a size is dynamic."""
    if not any(isinstance(size, SymInt) for size in sizes):
        return NotImplemented
    starts = [sum(sizes[:part]) for part in range(len(sizes))]
    ends = [*starts[1:], None]
    return [aten.slice.Tensor(x, dim, start, end) for start, end in zip(starts, ends, strict=True)]
