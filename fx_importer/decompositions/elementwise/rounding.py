"""Rules of rounding to an integer."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.trunc.default)
def trunc(x: Tensor) -> Tensor:
    """Round towards zero; the dialect folds a constant with the wrong sign: 5.0 becomes -5.0."""
    return torch.where(x < 0.0, torch.ceil(x), torch.floor(x)) if x.is_floating_point() else x.clone()
