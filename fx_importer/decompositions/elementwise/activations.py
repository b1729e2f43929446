"""Rules of elu, gelu, relu and threshold."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.elementwise.scalars import Number
from fx_importer.decompositions.emulation.integers import is_integer
from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.elu.default)
def elu(x: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    """Return ``scale * (x if x > 0 else alpha * expm1(input_scale * x))``.

    ``exp(x) - 1`` is inexact near zero.
    """
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


@decomposes(aten.gelu.default)
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Return ``x * Φ(x)``, or its approximation by a hyperbolic tangent; half precision in float32, as eager.

    The C++ lowerings round the constants to four digits, and cube by a power, which TOSA defines for positive bases
    only.
    """
    if x.dtype in HALF_DTYPES:
        return gelu(x.float(), approximate).to(x.dtype)
    if approximate != "tanh":
        return x * 0.5 * (torch.erf(x * math.sqrt(0.5)) + 1.0)
    return x * 0.5 * (torch.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)


@decomposes(aten.relu.default)
def relu(x: Tensor) -> Tensor:
    """Return ``clamp(x, min=0)``, for integers ``maximum(x, 0)``."""
    return torch.clamp(x, min=0) if x.is_floating_point() else torch.maximum(x, torch.full((), 0, dtype=x.dtype))


@decomposes(aten.relu.default)
def relu_integers(x: Tensor) -> Tensor:
    """Return ``maximum(x, 0)`` for integers."""
    return torch.maximum(x, torch.zeros((), dtype=x.dtype)) if is_integer(x) else NotImplemented


@decomposes(aten.threshold.default)
def threshold_of_integers(x: Tensor, threshold: Number, value: Number) -> Any:
    """Return ``x``, and ``value`` where ``x <= threshold``, for integers, to whose dtype eager truncates both."""
    if x.is_floating_point():
        return NotImplemented
    return torch.where(x <= int(threshold), torch.full((), int(value), dtype=x.dtype), x)
