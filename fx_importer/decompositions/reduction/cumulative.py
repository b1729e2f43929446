"""Scans of half precision, which eager accumulates in float32; one sort for all, and the k-th value by it."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.complex.complex_numbers import parts_of_tensor
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

_HALVES = (torch.float16, torch.bfloat16)


@decomposes(aten.cumsum.default)
def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Half precision in float32, complex numbers in their parts; others stay."""
    kind = dtype or x.dtype
    if kind.is_complex and x.is_complex():
        return torch.complex(*(torch.cumsum(part, dim) for part in parts_of_tensor(x.to(kind))))
    return torch.cumsum(x.to(kind).float(), dim).to(kind) if kind in _HALVES else NotImplemented


@decomposes(aten.cumprod.default)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Half precision in float32, and in a dtype that is given; others stay."""
    kind = dtype or x.dtype
    if kind in _HALVES:
        return torch.cumprod(x.to(kind).float(), dim).to(kind)
    return NotImplemented if dtype is None else torch.cumprod(x.to(kind), dim).to(kind)  # whole numbers become int64


@decomposes(aten.sort.stable)
def stable_sort(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The other overload, whose lowering is stable."""
    return torch.sort(x, dim, descending)


@decomposes(aten.kthvalue.default)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th value, from 1, of each row sorted along ``dim``, and where it is."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, indices = torch.sort(x, dim=dim)
    value, index = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


SCANS: tuple[Decomposition, ...] = (cumsum, cumprod, stable_sort, kthvalue)
