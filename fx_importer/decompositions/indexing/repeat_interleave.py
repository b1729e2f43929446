"""Decomposition of ``repeat_interleave`` with a static output size."""

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
