"""Decompositions of ``masked_select`` and ``masked_scatter``, and selection and writes by a boolean mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


def select_by_mask(x: Tensor, axis: int, mask: Tensor) -> Tensor:
    """Return the slices of ``x`` along ``axis`` at which a mask of rank 1 is true."""
    return x.index_select(axis, aten.nonzero(mask).squeeze(1))


@decomposes(aten.masked_select.default)
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """Return the elements at which a mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    return select_by_mask(x.reshape(-1), 0, mask.reshape(-1))


@decomposes(aten.masked_scatter.default)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Return ``x`` with consecutive elements of ``source`` where a mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    if is_empty(source) or is_empty(x):
        return x.clone()
    place = torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1
    elements = source.reshape(-1)
    if not is_static(source):  # it may be empty, and the index is clamped to zero
        elements = torch.cat([elements, torch.zeros((1,), dtype=source.dtype)])
    selected = elements.index_select(0, torch.clamp(place, min=0))
    return torch.where(mask, selected.reshape(x.shape), x)


def put_by_mask(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Any:
    """Write where a mask of the leading axes is true: consecutive rows of ``values``, or one row everywhere."""
    mask = indices[0]
    if mask is None or len(indices) != 1 or not mask.dim():
        return NotImplemented
    if is_empty(values):
        return x.clone()
    rest = x.dim() - mask.dim()
    if values.dim() > rest and (not is_static(values) or values.shape[0] != 1):
        last = torch.full((), values.shape[0] - 1, dtype=torch.int64)
        row = torch.minimum(torch.clamp(torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1, min=0), last)
        values = values.index_select(0, row).reshape(*mask.shape, *values.shape[1:])
    elif values.dim() > rest:
        values = values.squeeze(0)
    return torch.where(mask.reshape(*mask.shape, *[1] * rest), x + values if accumulate else values, x)
