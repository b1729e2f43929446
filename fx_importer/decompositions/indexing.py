"""Writing by indices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_importer.decompositions.table import decomposes

aten = torch.ops.aten


@decomposes(aten.index_put.default)
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Write along the leading axes, whichever axes ``indices`` are of: TOSA scatters rows.

    ``x[:, i] = values`` is written as ``x.T[i] = values.T``. Indices with axes between them are left alone, and so is
    what indexes the leading axes already.
    """
    given = [axis for axis, index in enumerate(indices) if index is not None]
    first = given[0] if given else 0
    if first == 0 or given != list(range(first, first + len(given))):
        return NotImplemented
    tensors = [index for index in indices if index is not None]
    if any(index.dtype == torch.bool for index in tensors):
        return NotImplemented  # a mask takes as many axes as it has
    picked = torch.broadcast_shapes(*(index.shape for index in tensors))
    before, after = list(range(first)), list(range(first + len(given), x.dim()))
    values = values.expand(*x.shape[:first], *picked, *(x.shape[axis] for axis in after))
    middle = list(range(first, first + len(picked)))
    rest = list(range(first + len(picked), values.dim()))
    order = [*given, *before, *after]
    written = aten.index_put(x.permute(order), tensors, values.permute([*middle, *before, *rest]), accumulate)
    return written.permute([order.index(axis) for axis in range(x.dim())])
