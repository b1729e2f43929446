"""Rules of clamp, clamp_min and clamp_max, and of fmax and fmin."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.elementwise.scalars import Number, number_of_dtype, scalar_like
from fx_importer.decompositions.emulation.bools import clamp_bools_by_numbers
from fx_importer.decompositions.emulation.integers import is_integer
from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.torch_internals import UNSIGNED_BOUNDS_WRAP


@decomposes(aten.clamp.default)
def clamp_with_infinite_bounds(x: Tensor, min: Number | None = None, max: Number | None = None) -> Tensor:
    """Return ``minimum(maximum(x, min), max)``, where a missing bound is infinite.

    The C++ lowering to TOSA takes the largest finite number for a missing bound. Integers stay if both bounds are
    integers in order.
    """
    if is_kept(aten.clamp.default) or not all(isinstance(bound, Number | None) for bound in (min, max)):
        return NotImplemented
    if not x.is_floating_point():
        if any(isinstance(bound, float) for bound in (min, max)):
            return torch.clamp(x.to(torch.get_default_dtype()), min, max)
        if (promoted := clamp_bools_by_numbers(x, min, max)) is not NotImplemented:
            return promoted
        return (
            _maximum_then_minimum(x, min, max) if min is not None and max is not None and min > max else NotImplemented
        )
    low, high = -math.inf if min is None else float(min), math.inf if max is None else float(max)
    if not low <= high:
        return _maximum_then_minimum(x, low, high)
    with keep(aten.clamp.default):
        return torch.clamp(x, low, high)


def _maximum_then_minimum(x: Tensor, low: Number, high: Number) -> Tensor:
    """Return ``minimum(maximum(x, low), high)``: the upper bound wins, and a NaN bound propagates."""
    bounds = (torch.full((), bound, dtype=x.dtype) for bound in (low, high))
    return torch.minimum(torch.maximum(x, next(bounds)), next(bounds))


@decomposes(aten.clamp_min.default)
def clamp_min(x: Tensor, min: Number) -> Tensor:
    """Return `clamp` with a lower bound only."""
    return torch.clamp(x, min=min)


@decomposes(aten.clamp_max.default)
def clamp_max(x: Tensor, max: Number) -> Tensor:
    """Return `clamp` with an upper bound only."""
    return torch.clamp(x, max=max)


@decomposes(aten.clamp.Tensor)
def clamp_tensors(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Return the minimum with ``max`` of the maximum with ``min``; either may be missing."""
    x = x if min is None else torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


TOSA_CLAMPS: tuple[Decomposition, ...] = (clamp_with_infinite_bounds, clamp_min, clamp_max, clamp_tensors)


@decomposes(aten.clamp.default)
def clamp_by_scalars(x: Tensor, min: Number | None = None, max: Number | None = None) -> Tensor:
    """Return ``minimum(maximum(x, min), max)``, the bounds as constant tensors; NaN propagates."""
    if min is not None:
        x = torch.maximum(x, scalar_like(min, x))
    if max is not None:
        x = torch.minimum(x, scalar_like(max, x))
    return x


@decomposes(aten.clamp.default)
def clamp_by_floats(x: Tensor, min: Number | None = None, max: Number | None = None) -> Any:
    """Clamp integers to float bounds in floating point; return NaN if a bound is NaN.

    The C++ lowering compares the integers as they are.
    """
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (min, max)):
        return torch.full_like(x, math.nan, dtype=torch.result_type(x, math.nan))
    if x.is_floating_point() or not any(isinstance(bound, float) for bound in (min, max)):
        return NotImplemented
    return torch.clamp(x.to(torch.get_default_dtype()), min, max)


@decomposes(aten.clamp.default)
def clamp_beyond_the_dtype(x: Tensor, min: Number | None = None, max: Number | None = None) -> Any:
    """Clamp integers to bounds that their dtype does not have, as eager: `UNSIGNED_BOUNDS_WRAP`."""
    bounds = [bound for bound in (min, max) if bound is not None]
    if not is_integer(x) or not all(type(bound) is int for bound in bounds):
        return NotImplemented
    limits = torch.iinfo(x.dtype)
    if all(limits.min <= bound <= limits.max for bound in bounds):
        return NotImplemented
    if not UNSIGNED_BOUNDS_WRAP:
        low = None if min is None or min < limits.min else min
        high = None if max is None or max > limits.max else max
        return x.clone() if low is None and high is None else torch.clamp(x, low, high)
    if x.dtype.is_signed or all(bound >= 0 for bound in bounds):
        return NotImplemented
    return torch.clamp(x, *(None if bound is None else number_of_dtype(bound, x.dtype) for bound in (min, max)))


@decomposes(aten.clamp.default)
def clamp_integers(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Clamp integers by maximum and minimum: C++ cuts the bounds off at 32 bits."""
    if not is_integer(x) or isinstance(min, float) or isinstance(max, float):
        return NotImplemented
    if min is not None:
        x = torch.maximum(x, torch.full((), min, dtype=x.dtype))
    return x if max is None else torch.minimum(x, torch.full((), max, dtype=x.dtype))


@decomposes(aten.hardtanh.default)
def hardtanh_of_integers(x: Tensor, min: float = -1, max: float = 1) -> Any:
    """Clamp integers; bounds are truncated, as in eager."""
    return torch.clamp(x, int(min), int(max)) if is_integer(x) else NotImplemented


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
