"""Rules of variances, in two passes and in the input's own precision; half precision in float32, as eager.

The torch dialect's own go through float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

Axes = Sequence[int] | None


def _variance(x: Tensor, axes: Axes, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean over ``axes``: all of them, if none is given."""
    reduced = list(axes) if axes else list(range(x.dim()))
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = wide.mean(reduced, keepdim=True)
    centered = wide - mean
    squares = centered.abs().square() if x.is_complex() else centered * centered
    freedom = math.prod(x.shape[axis] for axis in reduced if x.dim()) - (1 if correction is None else correction)
    if not statically_known_true(freedom >= 0):
        freedom = torch.sym_max(freedom, 0)  # a division by zero, as eager's
    variance = squares.sum(reduced, keepdim=keepdim) / freedom
    return variance.to(x.dtype.to_real()), (mean if keepdim else mean.squeeze(reduced)).to(x.dtype)


@decomposes(aten.var.correction)
def var(x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return ``sum((x - mean)**2) / (n - correction)``."""
    return _variance(x, dim, correction, keepdim)[0]


@decomposes(aten.var_mean.correction)
def var_mean(
    x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean."""
    return _variance(x, dim, correction, keepdim)


@decomposes(aten.std.correction)
def std(x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the square root of the variance."""
    return torch.sqrt(_variance(x, dim, correction, keepdim)[0])


@decomposes(aten.std_mean.correction)
def std_mean(
    x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean."""
    variance, mean = _variance(x, dim, correction, keepdim)
    return torch.sqrt(variance), mean
