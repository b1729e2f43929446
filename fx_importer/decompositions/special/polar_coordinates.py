"""Norms and distances, of real numbers, and elementwise functions that are defined by comparisons and roots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.complex.complex_numbers import parts_of_tensor
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.special.chebyshev import in_floats
from fx_importer.fx_graph.operators import aten


@in_floats(aten.hypot.default)
def hypot(a: Tensor, b: Tensor) -> Tensor:
    """``sqrt(a**2 + b**2)``, by the ratio of both, so that no square overflows. Relative error in float32: 2e-7."""
    large, small = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    ratio = small / torch.where(large == 0, 1, large)
    length = large * torch.sqrt(1 + ratio * ratio)
    infinite = (a.abs() == torch.inf) | (b.abs() == torch.inf)
    return torch.where(infinite, torch.inf, length)


@decomposes(aten.angle.default)
def angle(x: Tensor) -> Any:
    """Of a complex number, its angle; of a real one, 0 or pi."""
    if x.is_complex():
        return torch.atan2(*reversed(parts_of_tensor(x)))
    real = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.where(real != real, real, torch.where(real < 0, math.pi, 0.0).to(real.dtype))


@decomposes(aten.isfinite.default)
def isfinite(x: Tensor) -> Any:
    """Neither infinite nor not a number; comparing with what is not a number is false."""
    if x.is_complex():
        return NotImplemented
    return x.abs() < torch.inf if x.is_floating_point() else torch.ones_like(x, dtype=torch.bool)


@decomposes(aten.polar.default)
def polar(size: Tensor, angle: Tensor) -> Tensor:
    """The complex number of this size and angle."""
    size, angle = torch.broadcast_tensors(size, angle)
    return torch.complex(size * torch.cos(angle), size * torch.sin(angle))


@decomposes(aten.fmax.default)
def fmax(a: Tensor, b: Tensor) -> Tensor:
    """The larger; the other one, if one is not a number."""
    return _of_numbers(a, b, torch.maximum)


@decomposes(aten.fmin.default)
def fmin(a: Tensor, b: Tensor) -> Tensor:
    """The smaller; the other one, if one is not a number."""
    return _of_numbers(a, b, torch.minimum)


def _of_numbers(a: Tensor, b: Tensor, choose: Any) -> Tensor:
    dtype = torch.result_type(a, b)
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))
    if not dtype.is_floating_point:
        return choose(a, b)
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, choose(a, b)))


@decomposes(aten.rsub.Tensor)
def rsub(a: Tensor, b: Tensor, alpha: float = 1) -> Tensor:
    """``b - alpha * a``."""
    return torch.sub(b, a, alpha=alpha)


def norm(x: Tensor, p: float, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """The p-norm of floats over ``dims``: for 0 the count of what is not zero, for infinity the largest size."""
    dims = list(dims)
    if p == 0:
        return torch.sum((x != 0).to(x.dtype), dims, keepdim)
    if p == math.inf:
        return torch.amax(x.abs(), dims, keepdim)
    if p == -math.inf:
        return torch.amin(x.abs(), dims, keepdim)
    if p == 1:
        return torch.sum(x.abs(), dims, keepdim)
    if p == 2:
        return torch.sqrt(torch.sum(x * x, dims, keepdim))
    return torch.pow(torch.sum(torch.pow(x.abs(), p), dims, keepdim), 1 / p)


@decomposes(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """The p-norm over ``dim``, or over all axes; half precision is accumulated in float32."""
    kind = dtype or x.dtype
    if x.is_complex() or not kind.is_floating_point or not isinstance(ord, int | float) or not x.dim():
        return NotImplemented
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    return norm(x.to(wide), ord, range(x.dim()) if dim is None else dim or range(x.dim()), keepdim).to(kind)


@decomposes(aten.dist.default)
def dist(a: Tensor, b: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    return torch.linalg.vector_norm(a - b, p)


@decomposes(aten._cdist_forward.default)
def cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """The p-norm of the difference of each row of a and each of b. Never by a product: it is more exact, and larger."""
    del compute_mode
    return norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, [-1])


@decomposes(aten._pdist_forward.default)
def pdist(x: Tensor, p: float = 2) -> Any:
    """The p-norm of the difference of each row and each later one."""
    if not isinstance(x.shape[0], int):
        return NotImplemented
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1).unbind()
    return norm(x[first] - x[second], p, [-1])


DISTANCES = (hypot, angle, isfinite, polar, fmax, fmin, rsub, vector_norm, dist, cdist, pdist)
