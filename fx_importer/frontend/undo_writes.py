"""Restoring tensor attributes that tracing mutates.

torch.export traces with fake inputs, parameters and buffers. Other tensors of the model, in attributes or objects of a
library, are real while tracing, so that mutations of them persist.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def attributes_restored(module: torch.nn.Module) -> Iterator[None]:
    """Restore the values of tensors of ``module`` that the body mutates, except for parameters and buffers."""
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in _attributes(module)]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, version, old in before:
                if tensor._version != version and tensor.shape == old.shape:
                    tensor.copy_(old)


def _attributes(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield the tensors reachable from ``module`` that are neither parameters nor buffers."""
    seen: set[int] = set()
    todo: list[Any] = [module]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, _LEAVES):
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            # Parameters are always faked; an inference tensor cannot be mutated here.
            if type(each) is torch.Tensor and not each.is_meta and not each.is_inference():
                yield each
        elif isinstance(each, dict):
            todo += each.values()
        elif isinstance(each, list | tuple | set):
            todo += each
        elif isinstance(each, types.FunctionType):
            todo += [cell.cell_contents for cell in each.__closure__ or () if cell != _EMPTY]
        else:
            own = getattr(each, "__dict__", {})
            todo += [value for name, value in own.items() if name not in ("_parameters", "_buffers")]


_LEAVES = (str, bytes, int, float, type, types.ModuleType, torch.dtype, torch.device, torch.fx.Graph)
_EMPTY = types.CellType()
