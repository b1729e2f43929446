"""Bounds that TOSA's ``clamp`` keeps: the C++ lowerings make the largest finite number the bound that is not given."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

Number = int | float


@decomposes(aten.clamp.default)
def clamp(x: Tensor, min: Number | None = None, max: Number | None = None) -> Tensor:
    """``minimum(maximum(x, min), max)``; where no bound is given, infinity is one. Integers stay if both are whole."""
    if is_kept(aten.clamp.default) or not all(isinstance(each, Number | None) for each in (min, max)):
        return NotImplemented
    if not x.is_floating_point():
        if any(isinstance(each, float) for each in (min, max)):
            return torch.clamp(x.to(torch.get_default_dtype()), min, max)
        return _ordered(x, min, max) if min is not None and max is not None and min > max else NotImplemented
    low, high = -math.inf if min is None else float(min), math.inf if max is None else float(max)
    if not low <= high:
        return _ordered(x, low, high)
    with keep(aten.clamp.default):
        return torch.clamp(x, low, high)


def _ordered(x: Tensor, low: Number, high: Number) -> Tensor:
    """One after the other: the upper bound wins, and a bound may be NaN."""
    bounds = (torch.full((), each, dtype=x.dtype) for each in (low, high))
    return torch.minimum(torch.maximum(x, next(bounds)), next(bounds))


@decomposes(aten.clamp_min.default)
def clamp_min(x: Tensor, min: Number) -> Tensor:
    """One bound."""
    return torch.clamp(x, min=min)


@decomposes(aten.clamp_max.default)
def clamp_max(x: Tensor, max: Number) -> Tensor:
    """One bound."""
    return torch.clamp(x, max=max)


@decomposes(aten.clamp.Tensor)
def clamp_tensors(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Each bound that is given."""
    x = x if min is None else torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


@decomposes(aten.relu.default)
def relu(x: Tensor) -> Tensor:
    """A clamp from zero on."""
    return torch.clamp(x, min=0) if x.is_floating_point() else torch.maximum(x, torch.full((), 0, dtype=x.dtype))


BOUNDS: tuple[Decomposition, ...] = (clamp, clamp_min, clamp_max, clamp_tensors, relu)
