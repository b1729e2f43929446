"""Gradients of activations that torch has no rule for."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.table import decomposes

aten = torch.ops.aten


@decomposes(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Tensor:
    """Nothing comes back from between ``-lambd`` and ``lambd``."""
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(grad), grad)
