"""Scalar operands as constant tensors of rank zero, in the dtype of the result.

The StableHLO lowerings emit a scalar as a float64 (or int64) ``arith.constant`` and a conversion, which no consumer of
StableHLO accepts; TOSA's ``eq`` compares in float64. A constant tensor of the result's own dtype lowers cleanly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.table import Decomposition, decomposes

Number = int | float
"""A real scalar. Complex and symbolic ones are not matched."""


def scalar_like(value: Number, other: Tensor) -> Tensor:
    """Return ``value``, possibly symbolic, as a rank-zero tensor of the dtype that arithmetic with ``other`` has."""
    if isinstance(value, SymInt | SymFloat):
        like = 0 if isinstance(value, SymInt) else 0.0
        return torch.scalar_tensor(value, dtype=torch.result_type(other, like))
    return torch.full((), value, dtype=torch.result_type(other, value))


def with_scalar(onto: OpOverload, *operators: OpOverload) -> Decomposition:
    """Return the rule of ``operators`` for a scalar on either side; ``onto`` is the overload of two tensors."""

    @decomposes(*operators)
    def rule(a: Tensor | Number, b: Tensor | Number, **kwargs: Any) -> Tensor:
        if isinstance(b, Number) and isinstance(a, Tensor):
            return onto(a, scalar_like(b, a), **kwargs)
        if isinstance(a, Number) and isinstance(b, Tensor):
            return onto(scalar_like(a, b), b, **kwargs)
        return NotImplemented

    return rule
