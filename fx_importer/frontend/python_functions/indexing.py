"""Indices of Python that depend on values: ``x[mask, k]`` and ``x[:, k.item()] = v``."""

from __future__ import annotations

from typing import Any

import torch
from torch import SymInt, Tensor


def set_item(x: Tensor, index: Any, value: Any) -> Any:
    """Write at numbers of tensors, which stay symbolic: torch's C++ code takes the example's, or refuses them."""
    if (selected := _at_items(x, index)) is None:
        return NotImplemented
    part, rest = selected
    part[rest] = value
    return None


def get_item(x: Tensor, index: Any) -> Any:
    """Read as `set_item` writes; torch keeps numbers symbolic where no list or tensor of indices is beside them."""
    if all(_axes(each) is None for each in _indices(index)):
        return NotImplemented
    selected = _at_items(x, index)
    return NotImplemented if selected is None else selected[0][selected[1]]


def _at_items(x: Tensor, index: Any) -> tuple[Tensor, Any] | None:
    """Return the view of ``x`` at the basic indices, which torch applies first, and the index of the others in it."""
    indices = _indices(index)
    if not any(map(_depends_on_values, indices)):
        return None
    if not all(_is_basic(each) or _axes(each) is not None for each in indices):
        return None
    part, axis, rest = x, 0, []
    for each in indices:
        if each is ...:
            number = sum(_axes(other) or other is not None for other in indices if other is not ...)
            axis += x.dim() - number
            rest += [slice(None)] * (x.dim() - number)
        elif each is None:
            part, axis = part.unsqueeze(axis), axis + 1
            rest.append(slice(None))
        elif isinstance(each, slice):
            part, axis = part[(slice(None),) * axis + (each,)], axis + 1
            rest.append(slice(None))
        elif (axes := _axes(each)) is not None:
            axis += axes
            rest.append(_stacked(each) if _is_list_of_items(each) else each)
        else:
            number: Any = each.item() if isinstance(each, Tensor) else each
            part = part.select(axis, number)
    return part, tuple(rest) if any(_axes(each) is not None for each in rest) else ...


def _indices(index: Any) -> tuple[Any, ...]:
    """Return the indices of the axes: none for a list with a tensor in it, which torch takes as a tuple and warns."""
    if isinstance(index, list) and any(isinstance(each, Tensor) for each in index):
        return ()
    return index if isinstance(index, tuple) else (index,)


_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def _is_number(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dim() == 0 and index.dtype in _INTEGERS


def _depends_on_values(index: Any) -> bool:
    return isinstance(index, SymInt) or _is_number(index) or _is_list_of_items(index)


def _is_list_of_items(index: Any) -> bool:
    numbers = isinstance(index, list) and all(type(each) in (int, SymInt) or _is_number(each) for each in index)
    return numbers and any(type(each) is not int for each in index)


def _stacked(numbers: list[Any]) -> Tensor:
    """Return numbers as a tensor of indices: torch makes one of a list with the example's items."""
    tensors = [each if isinstance(each, Tensor) else torch.scalar_tensor(each, dtype=torch.int64) for each in numbers]
    return torch.stack([each.to(torch.int64) for each in tensors])


def _is_basic(index: Any) -> bool:
    return (
        index is None or index is ... or isinstance(index, slice) or type(index) in (int, SymInt) or _is_number(index)
    )


def _axes(index: Any) -> int | None:
    """Return the number of axes that a tensor or list of indices, or a mask, takes."""
    if isinstance(index, Tensor) and index.dim():
        return 1 if index.dtype in _INTEGERS else index.dim() if index.dtype is torch.bool else None
    if isinstance(index, list) and index and all(type(each) in (int, bool) for each in index):
        return 1
    return 1 if _is_list_of_items(index) else None
