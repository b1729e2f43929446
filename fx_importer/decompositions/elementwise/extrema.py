"""Rules of fmax and fmin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.fmax.default)
def fmax(a: Tensor, b: Tensor) -> Tensor:
    """The larger; the other one, if one is not a number."""
    return _ignoring_nan(a, b, torch.maximum)


@decomposes(aten.fmin.default)
def fmin(a: Tensor, b: Tensor) -> Tensor:
    """The smaller; the other one, if one is not a number."""
    return _ignoring_nan(a, b, torch.minimum)


def _ignoring_nan(a: Tensor, b: Tensor, choose: Any) -> Tensor:
    dtype = torch.result_type(a, b)
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))
    if not dtype.is_floating_point:
        return choose(a, b)
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, choose(a, b)))


FMAX_FMIN = (fmax, fmin)
