"""Rules of isfinite, isinf and isnan."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.isfinite.default)
def isfinite(x: Tensor) -> Tensor:
    """Return whether the magnitude is below infinity, which is false for NaN."""
    if x.is_complex():
        return NotImplemented
    return x.abs() < math.inf if x.is_floating_point() else torch.ones_like(x, dtype=torch.bool)


@decomposes(aten.isinf.default)
def isinf(x: Tensor) -> Any:
    """Return whether the magnitude is infinite, false for integers: the C++ lowerings compare in float64."""
    if x.is_complex():
        return NotImplemented
    return x.abs() == math.inf if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)


@decomposes(aten.isinf.default)
def isinf_floats(x: Tensor) -> Tensor:
    """Return whether the magnitude is infinite, compared in the dtype of ``x``: C++ compares in float64."""
    return x.abs() == torch.full((), math.inf, dtype=x.dtype) if x.is_floating_point() else NotImplemented


@decomposes(aten.isnan.default)
def isnan(x: Tensor) -> Tensor:
    """Return whether ``x != x``; no integer is NaN."""
    if x.is_complex():
        return NotImplemented
    return x != x if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)


FLOAT_CLASSIFICATION: tuple[Decomposition, ...] = (isfinite, isinf)
