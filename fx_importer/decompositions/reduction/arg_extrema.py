"""Rules of positions of extrema of wide integers, which TOSA compares as floats of 32 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_NARROW = (torch.int8, torch.int16)


def _is_compared_as_integer(x: Tensor) -> bool:
    """Return whether ``x`` has integers that float32 cannot represent, or integers and dynamic sizes."""
    if x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
        return False
    return x.dtype in (torch.int32, torch.int64) or not is_static(x)


@decomposes(aten.argmax.default)
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the first position of the maximum: of a one among zeros, which are exact as floats."""
    return _first(x, dim, keepdim, torch.amax) if _is_compared_as_integer(x) else NotImplemented


@decomposes(aten.argmin.default)
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the first position of the minimum. C++ negates integers, which overflows for the least one."""
    if x.dtype in _NARROW and is_static(x):
        return torch.argmax(torch.bitwise_not(x), dim, keepdim)
    return _first(x, dim, keepdim, torch.amin) if _is_compared_as_integer(x) else NotImplemented


@decomposes(aten.max.dim)
def max_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """Return the maximum along an axis, and its first position."""
    if not _is_compared_as_integer(x):
        return NotImplemented
    return torch.amax(x, dim, keepdim), _first(x, dim, keepdim, torch.amax)


@decomposes(aten.min.dim)
def min_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """Return the minimum along an axis, and its first position."""
    if x.dtype not in _NARROW and not _is_compared_as_integer(x):
        return NotImplemented
    return torch.amin(x, dim, keepdim), torch.argmin(x, dim, keepdim)


def _first(x: Tensor, dim: int | None, keepdim: bool, extremum: Any) -> Tensor:
    """Return the first position of the extremum along ``dim``, or among all elements."""
    rank = x.dim()
    if dim is None:
        result = _first(x.reshape(-1), 0, False, extremum)
        return result.reshape([1] * rank) if keepdim else result
    return torch.argmax((x == extremum(x, dim, True)).float(), dim, keepdim)


ARG_EXTREMA = (argmax, argmin, max_along, min_along)
