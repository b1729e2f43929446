"""Decompositions of factory functions: ``empty`` and its forms, ``arange`` and ``_efficientzerotensor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.empty_permuted.default)
def empty_permuted(size: Sequence[int], order: Sequence[int], **settings: Any) -> Tensor:
    """Return an empty tensor: its contents are undefined, and MLIR tensors have no strides."""
    return aten.empty.memory_format(size, **settings)


@decomposes(aten.arange.start_step)
def arange_int8(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Return the numbers of 8-bit integers, counted in int64; no match for other dtypes."""
    if dtype not in (torch.int8, torch.uint8):
        return NotImplemented
    return torch.arange(start, end, step, dtype=torch.int64).to(dtype)


@decomposes(aten.empty.memory_format)
def empty_of_dynamic_shape(size: Sequence[int], *, memory_format: object = None, **settings: Any) -> Tensor:
    """Return zeros: values of an empty tensor are undefined, and memory formats are nothing in MLIR."""
    if all(isinstance(length, int) for length in size):
        return NotImplemented
    return torch.zeros(size, **settings)


@decomposes(aten.empty_like.default)
def empty_like_of_dynamic_shape(x: Tensor, *, memory_format: object = None, **settings: Any) -> Tensor:
    """Return zeros, as `empty_of_dynamic_shape` does."""
    if all(isinstance(size, int) for size in x.shape):
        return NotImplemented
    return torch.full_like(x, 0, **settings)


@decomposes(aten._efficientzerotensor.default)
def efficient_zero_tensor(size: Sequence[int], **settings: Any) -> Tensor:
    """Return zeros; autograd has these for undefined gradients."""
    return torch.zeros(size, **settings)


@decomposes(aten.linspace.Tensor_Tensor, aten.linspace.Tensor_Scalar, aten.linspace.Scalar_Tensor)
def linspace_without_device(start: Any, end: Any, steps: int, *, device: object = None, **settings: Any) -> Any:
    """Name the device, which torch's decomposition requires; no match where it is named."""
    return torch.linspace(start, end, steps, device="cpu", **settings) if device is None else NotImplemented
