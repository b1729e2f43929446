"""Tensors of numbers that Python lists."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols


def tensor(
    data: Any, dtype: torch.dtype | None = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Any:
    """Return the tensor of nested lists with tensors of rank 0, which torch would read from memory."""
    numbers = list(_numbers(data)) if isinstance(data, list | tuple) else []
    if requires_grad or not any(map(_depends_on_values, numbers)):
        return NotImplemented
    if any((isinstance(number, Tensor) and number.dim()) or number is NotImplemented for number in numbers):
        return NotImplemented
    kind = dtype or reduce(torch.promote_types, map(_dtype, numbers))
    if not all(torch.can_cast(number.dtype, kind) for number in numbers if isinstance(number, Tensor)):
        return NotImplemented
    return _stacked(data, kind, device)


def _numbers(data: Any) -> Iterator[Any]:
    """Yield the numbers in nested lists, and NotImplemented for anything else."""
    if isinstance(data, list | tuple) and data:
        for each in data:
            yield from _numbers(each)
    else:
        yield data if isinstance(data, Tensor | bool | int | float | SymBool | SymInt | SymFloat) else NotImplemented


def _depends_on_values(number: Any) -> bool:
    return isinstance(number, Tensor) or bool(isinstance(number, SymInt | SymFloat) and free_unbacked_symbols(number))


def _dtype(number: Any) -> torch.dtype:
    if isinstance(number, Tensor):
        return number.dtype
    if isinstance(number, float | SymFloat):
        return torch.get_default_dtype()
    return torch.bool if isinstance(number, bool | SymBool) else torch.int64


def _stacked(data: Any, dtype: torch.dtype, device: Any) -> Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_stacked(each, dtype, device) for each in data])
    if isinstance(data, Tensor):
        return data.detach().to(device, dtype)
    return torch.scalar_tensor(data, dtype=dtype, device=device)
