"""Decomposition of ``combinations``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.combinations.default)
def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """Return combinations of one element; for more, torch.export cannot express the output size."""
    return x.unsqueeze(1) if r == 1 else NotImplemented
