"""Norms of vectors by sums and roots: the C++ lowerings raise to a power, which TOSA has of positive numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

Axes = Sequence[int] | None


@decomposes(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """``sum(|x|**ord) ** (1 / ord)`` over ``dim``, all axes if none is given; the largest for an infinite ``ord``."""
    if x.is_complex() or not x.is_floating_point():
        return NotImplemented
    x = (x if dtype is None else x.to(dtype)).abs()
    axes = list(dim) if dim else list(range(x.dim()))
    if math.isinf(ord):
        return torch.amax(x, axes, keepdim) if ord > 0 else torch.amin(x, axes, keepdim)
    if ord == 0:
        return torch.sum((x != 0).to(x.dtype), axes, keepdim)
    if ord == 2:
        return torch.sqrt(torch.sum(x * x, axes, keepdim))
    total = torch.sum(x if ord == 1 else x**ord, axes, keepdim)
    return total if ord == 1 else total ** (1.0 / ord)


@decomposes(aten.norm.ScalarOpt_dim)
def norm_along(x: Tensor, p: float | None, dim: Axes, keepdim: bool = False) -> Any:
    """`vector_norm`, under its older name."""
    return vector_norm(x, 2.0 if p is None else p, dim, keepdim)


@decomposes(aten.norm.Scalar)
def norm(x: Tensor, p: float = 2) -> Any:
    """`vector_norm`, of all elements."""
    return vector_norm(x, p)


NORMS = (vector_norm, norm_along, norm)
