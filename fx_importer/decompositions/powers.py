"""Powers with an exponent that is a product or a root."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fx_importer.decompositions.table import decomposes

aten = torch.ops.aten

_SIMPLE: Mapping[float, Callable[[Tensor], Tensor]] = {
    1: lambda x: x.clone(),
    2: lambda x: x * x,
    3: lambda x: x * x * x,
}
_SIMPLE_OF_FLOATS: Mapping[float, Callable[[Tensor], Tensor]] = {
    0.5: torch.sqrt,
    -0.5: torch.rsqrt,
    -1: torch.reciprocal,
    -2: lambda x: torch.reciprocal(x * x),
}


@decomposes(aten.pow.Tensor_Scalar)
def power(x: Tensor, exponent: float) -> Tensor:
    """``x ** exponent``, for the exponents that eager also computes without a power; others stay."""
    if isinstance(exponent, int | float) and x.dtype != torch.bool:
        # A whole number to the power of a float is a float.
        if exponent in _SIMPLE and torch.result_type(x, exponent) == x.dtype:
            return _SIMPLE[exponent](x)
        if exponent in _SIMPLE_OF_FLOATS and x.is_floating_point():
            return _SIMPLE_OF_FLOATS[exponent](x)
    return NotImplemented
