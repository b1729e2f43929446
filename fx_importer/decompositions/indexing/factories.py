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
    """Return an empty tensor: its contents are undefined, and MLIR tensors have no strides."""
    return aten.empty.memory_format(size, **settings)


@decomposes(aten._efficientzerotensor.default)
def efficient_zero_tensor(size: Sequence[int], **settings: Any) -> Tensor:
    """Return zeros; autograd has these for undefined gradients."""
    return torch.zeros(size, **settings)
