"""Rules of variances, in two passes and in the input's own precision; half precision in float32, as eager.

The torch dialect's own go through float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

Axes = Sequence[int] | None


def _variance(x: Tensor, axes: Axes, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean over ``axes``: all of them, if none is given.

    The variance is in the precision in which it is computed: the root of a large one fits in half precision.
    """
    reduced = list(axes) if axes else list(range(x.dim()))
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = wide.mean(reduced, keepdim=True)
    centered = wide - mean
    squares = centered.abs().square() if x.is_complex() else centered * centered
    correction = 1 if correction is None else correction
    freedom = math.prod(x.shape[axis] for axis in reduced if x.dim()) - correction
    variance = squares.sum(reduced, keepdim=keepdim) / _not_negative(freedom, correction, squares.dtype)
    return variance, (mean if keepdim else mean.squeeze(reduced)).to(x.dtype)


def _not_negative(freedom: Any, correction: float, dtype: torch.dtype) -> Any:
    """Return the degrees of freedom, or 0 if they are negative: eager divides by zero then.

    The maximum of a symbolic size is one of tensors: SymPy's assumes that no size is 0, which callers may pass.
    """
    if correction > 0 and not isinstance(freedom, int | float):
        return torch.scalar_tensor(freedom, dtype=dtype).clamp(min=0)
    return torch.sym_max(freedom, 0)


@decomposes(aten.var.correction)
def var(x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return ``sum((x - mean)**2) / (n - correction)``."""
    return _variance(x, dim, correction, keepdim)[0].to(x.dtype.to_real())


@decomposes(aten.var_mean.correction)
def var_mean(
    x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean."""
    variance, mean = _variance(x, dim, correction, keepdim)
    return variance.to(x.dtype.to_real()), mean


@decomposes(aten.std.correction)
def std(x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the square root of the variance."""
    return torch.sqrt(_variance(x, dim, correction, keepdim)[0]).to(x.dtype.to_real())


@decomposes(aten.std_mean.correction)
def std_mean(
    x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean."""
    variance, mean = _variance(x, dim, correction, keepdim)
    return torch.sqrt(variance).to(x.dtype.to_real()), mean
