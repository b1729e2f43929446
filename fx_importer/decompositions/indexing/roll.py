"""Decomposition of ``roll``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.roll.default)
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Rotate elements by ``shifts`` along ``dims``, or along the flattened tensor if none are given.

    Dynamic axes are gathered: the C++ decomposition slices, and is wrong where a shift is beyond the size.
    """
    if not dims:
        return roll(x.flatten(), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim] if x.dim() else 1
        if isinstance(size, torch.SymInt):
            x = x.index_select(dim, torch.remainder(torch.arange(size) - shift, torch.full((), size)))
        elif size and shift % size:
            split = size - shift % size
            x = torch.cat([x.narrow(dim, split, size - split), x.narrow(dim, 0, split)], dim)
    return x
