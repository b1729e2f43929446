"""Rules of fmax and fmin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.fmax.default)
def fmax(a: Tensor, b: Tensor) -> Tensor:
    """Return the maximum; of a number and NaN, the number."""
    return _ignoring_nan(a, b, torch.maximum)


@decomposes(aten.fmin.default)
def fmin(a: Tensor, b: Tensor) -> Tensor:
    """Return the minimum; of a number and NaN, the number."""
    return _ignoring_nan(a, b, torch.minimum)


def _ignoring_nan(a: Tensor, b: Tensor, choose: Any) -> Tensor:
    """Return ``choose(a, b)``, or the other operand where one is NaN."""
    dtype = torch.result_type(a, b)
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))
    if not dtype.is_floating_point:
        return choose(a, b)
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, choose(a, b)))


FMAX_FMIN = (fmax, fmin)
