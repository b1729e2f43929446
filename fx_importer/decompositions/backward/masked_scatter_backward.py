"""Gradient of ``masked_scatter`` with respect to its source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.masked_scatter_backward.default)
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Any:
    """Return the gradient of the source, whose k-th element was written where the mask is true for the k-th time."""
    if not is_static(grad, mask) or not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    flat = mask.expand(grad.shape).reshape(-1)
    number = math.prod(sizes)
    order = torch.cumsum(flat.to(torch.int64), 0) - 1
    places = torch.where(flat, order, torch.full_like(order, number))
    sums = torch.zeros((number + 1,), dtype=grad.dtype)
    return torch.scatter_add(sums, 0, places, grad.reshape(-1)).narrow(0, 0, number).reshape(list(sizes))
