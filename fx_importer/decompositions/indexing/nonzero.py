"""Decompositions of ``nonzero`` and ``nonzero_static``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing.pairwise_masks import count, fits, positions
from fx_importer.fx_graph.operators import aten


@decomposes(aten.nonzero.default)
def nonzero(x: Tensor) -> Any:
    """Return one row without columns, or none, for rank zero; no match for other ranks."""
    return aten.nonzero(x.reshape(1))[:, :0] if x.dim() == 0 else NotImplemented


@decomposes(aten.nonzero_static.default)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """Return the indices of the first ``size`` nonzero elements, padded with ``fill_value``."""
    if not isinstance(size, int) or not fits(x.numel(), size) or is_empty(x) or not x.dim() or not size:
        return NotImplemented
    up_to = torch.cumsum((x.reshape(-1) != 0).to(torch.int32), 0, dtype=torch.int32)
    number = positions(size)
    position = count(up_to <= number.unsqueeze(-1)).to(torch.int64)
    columns: list[Tensor] = []
    for length in reversed(x.shape):
        columns.insert(0, torch.remainder(position, length))
        position = torch.div(position, length, rounding_mode="floor")
    there = (number < up_to[-1]).unsqueeze(-1)
    return torch.where(there, torch.stack(columns, 1), torch.full((), fill_value, dtype=torch.int64))
