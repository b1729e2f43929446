"""Decompositions of ``index_add``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.index_put import put_nonnegative
from fx_importer.decompositions.indexing.pairwise_masks import fits, masked_row_sums, positions
from fx_importer.fx_graph.operators import aten

Number = int | float


@decomposes(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Any:
    """Add slices of ``source`` to the slices of ``x`` at ``index``, by one matmul of a mask and flat rows."""
    source = source if alpha == 1 else source * alpha
    if x.dim() == 0:
        return x + torch.sum(source, dtype=x.dtype)
    if x.is_complex() or x.dtype == torch.bool:
        return NotImplemented
    if source.dim() == 0:
        source = source.reshape(1)
    size = x.shape[dim]
    rows = source.movedim(dim, 0)
    if is_empty(x) or is_empty(rows):
        return x.clone()
    flat = rows.reshape(rows.shape[0], -1)
    if not fits(size, *index.shape, 1 if flat.is_floating_point() else flat.shape[1]):
        return NotImplemented
    hits = positions(size).unsqueeze(-1) == index.reshape(1, -1)
    added = masked_row_sums(hits, flat).reshape(size, *rows.shape[1:]).movedim(0, dim)
    return x + added.to(x.dtype)


@decomposes(aten.index_add.default)
def index_add_by_writes(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Any:
    """Accumulate slices at indices that are not negative: torch's decomposition wraps them."""
    if is_empty(index) or is_empty(x):
        return x.clone()
    source = source if alpha == 1 else source * alpha
    if not x.dim():
        return x + source.reshape(())
    source = source if source.dim() else source.reshape(1)
    return put_nonnegative(x, [*[None] * (dim % x.dim()), index.reshape(-1).long()], source, True)
