"""Arithmetic of a tensor and a number, as arithmetic of two tensors of one type.

The StableHLO lowerings carry a number as a float64 (or int64) ``arith.constant`` and a conversion, which no consumer of
StableHLO takes; TOSA's ``eq`` compares in float64. A constant tensor of the result's own type is lowered cleanly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.table import Decomposition, decomposes

Number = int | float
"""Not a complex number, nor a symbolic one: those are left as they are."""


def scalar_like(value: Number, other: Tensor) -> Tensor:
    """Return ``value``, symbolic or not, as a tensor of rank zero, of the type that arithmetic with ``other`` has."""
    if isinstance(value, SymInt | SymFloat):
        like = 0 if isinstance(value, SymInt) else 0.0
        return torch.scalar_tensor(value, dtype=torch.result_type(other, like))
    return torch.full((), value, dtype=torch.result_type(other, value))


def with_scalar(onto: OpOverload, *operators: OpOverload) -> Decomposition:
    """Return the rule of ``operators``, for a number on either side: ``onto`` takes two tensors."""

    @decomposes(*operators)
    def rule(a: Tensor | Number, b: Tensor | Number, **kwargs: Any) -> Tensor:
        if isinstance(b, Number) and isinstance(a, Tensor):
            return onto(a, scalar_like(b, a), **kwargs)
        if isinstance(a, Number) and isinstance(b, Tensor):
            return onto(scalar_like(a, b), b, **kwargs)
        return NotImplemented

    return rule
