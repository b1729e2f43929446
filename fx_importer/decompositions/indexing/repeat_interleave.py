"""Decompositions of ``repeat_interleave`` by a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.repeat_interleave.Tensor)
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """Return each index ``repeats`` times, if the output size is static."""
    if not isinstance(output_size, int) or is_empty(repeats):
        return NotImplemented
    return torch.searchsorted(torch.cumsum(repeats, 0), torch.arange(output_size), right=True)


@decomposes(aten.repeat_interleave.Tensor)
def repeat_interleave_of_any_size(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """Return each index ``repeats`` times: how many ranges of results have begun, counted up to each result."""
    if is_empty(repeats):
        return NotImplemented
    ends = torch.cumsum(repeats, 0)
    total: Any = ends[-1].item() if output_size is None else output_size
    torch._check(total >= 0)
    begun = torch.zeros(total + 1, dtype=torch.int64).index_add(0, ends - repeats, torch.ones_like(ends))
    return (torch.cumsum(begun, 0)[:-1] - 1).to(repeats.dtype)
