"""Decompositions of factory functions: ``empty_permuted`` and ``_efficientzerotensor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.empty_permuted.default)
def empty_permuted(size: Sequence[int], order: Sequence[int], **settings: Any) -> Tensor:
    """What is in no particular order has no particular layout."""
    return aten.empty.memory_format(size, **settings)


@decomposes(aten._efficientzerotensor.default)
def efficient_zero_tensor(size: Sequence[int], **settings: Any) -> Tensor:
    """The gradients of what has none: zeros."""
    return torch.zeros(size, **settings)
