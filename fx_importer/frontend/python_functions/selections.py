"""Functions whose C++ code asks whether a tensor is empty, where that depends on values: ``x[x > 0].diff()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols


def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Any:
    """Return differences along an axis whose size depends on values, of which there are none without elements."""
    if not _is_unknown(input, dim) or input.dtype == torch.bool:
        return NotImplemented
    x = torch.cat([part for part in (prepend, input, append) if part is not None], dim)
    for _ in range(n):
        number: Any = torch.sym_max(x.shape[dim] - 1, 0)
        x = x.narrow(dim, x.shape[dim] - number, number) - x.narrow(dim, 0, number)
    return x


def cumulative(function: Callable[..., Any], input: Tensor, dim: int) -> Any:
    """Return ``cummax`` or ``cummin`` along an axis whose size depends on values, with one more row on the way."""
    if not _is_unknown(input, dim):
        return NotImplemented
    results = [part.narrow(dim, 0, input.shape[dim]) for part in function(_with_a_row(input, dim), dim)]
    return getattr(torch.return_types, function.__name__)(results)


def cdist(x1: Tensor, x2: Tensor, *options: Any, **keywords: Any) -> Any:
    """Return distances between rows whose number depends on values, with one more row on the way."""
    numbers = [x.shape[-2] if x.dim() > 1 and _is_unknown(x, -2) else None for x in (x1, x2)]
    if numbers == [None, None]:
        return NotImplemented
    a, b = (x if number is None else _with_a_row(x, -2) for x, number in zip((x1, x2), numbers, strict=True))
    distances = torch.cdist(a, b, *options, **keywords)
    for axis, number in zip((-2, -1), numbers, strict=True):
        distances = distances if number is None else distances.narrow(axis, 0, number)
    return distances


def _is_unknown(x: Tensor, dim: int) -> bool:
    """Return whether the size of an axis depends on values: torch asks there whether a tensor is empty."""
    return bool(x.dim() and isinstance(size := x.shape[dim], SymInt) and free_unbacked_symbols(size))


def _with_a_row(x: Tensor, dim: int) -> Tensor:
    sizes = list(x.shape)
    sizes[dim] = 1
    return torch.cat([x, x.new_zeros(sizes)], dim)
