"""Scalar operands as constant tensors of rank zero, in the dtype of the result.

The StableHLO lowerings emit a scalar as a float64 (or int64) ``arith.constant`` and a conversion, which no consumer of
StableHLO accepts; TOSA's ``eq`` compares in float64. A constant tensor of the result's own dtype lowers cleanly.
"""

from __future__ import annotations

import math

import torch
from torch import SymFloat, SymInt, Tensor
from torch._ops import OpOverload

Number = int | float
"""A real scalar. Complex and symbolic ones are not matched."""


_INTEGERS = frozenset(
    (
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    )
)


def number_of_dtype(value: Number, dtype: torch.dtype) -> Number:
    """Return ``value`` as eager converts it to ``dtype``: an integer wraps, a float is rounded."""
    if isinstance(value, int) and dtype in _INTEGERS:
        info = torch.iinfo(dtype)
        return (int(value) - info.min) % (1 << info.bits) + info.min
    if dtype.is_floating_point and dtype != torch.float64 and math.isfinite(value):
        return _rounded(float(value), torch.finfo(dtype))
    return value


def _rounded(value: float, info: torch.finfo) -> float:
    """Return ``value`` rounded to nearest, ties to even, in the float type of ``info``."""
    digits = 1 - round(math.log2(info.eps))
    least = round(math.log2(info.smallest_normal * info.eps))
    last = 2.0 ** max(math.frexp(value)[1] - digits, least)
    rounded = math.copysign(round(value / last) * last, value)
    return rounded if abs(rounded) <= info.max else math.copysign(math.inf, value)


def is_rounded(factor: object, dtype: torch.dtype) -> bool:
    """Return whether ``dtype``, of half precision, does not, or may not, hold ``factor``, a normal number.

    Eager multiplies by it in float32.
    """
    if isinstance(factor, SymInt):
        return bool(factor.node.shape_env.bound_sympy(factor.node.expr).upper > 2 / torch.finfo(dtype).eps)
    if isinstance(factor, SymFloat):
        return True
    if not isinstance(factor, Number) or not math.isfinite(factor):
        return False
    return 0 < abs(factor) < torch.finfo(dtype).smallest_normal or number_of_dtype(float(factor), dtype) != factor


def scalar_like(value: Number, other: Tensor) -> Tensor:
    """Return ``value``, possibly symbolic, as a rank-zero tensor of the dtype that arithmetic with ``other`` has."""
    if isinstance(value, SymInt | SymFloat):
        like = 0 if isinstance(value, SymInt) else 0.0
        return torch.scalar_tensor(value, dtype=torch.result_type(other, like))
    dtype = torch.result_type(other, value)
    return torch.full((), number_of_dtype(value, dtype), dtype=dtype)


def on_tensors(operator: OpOverload, a: Tensor | Number, b: Tensor | Number) -> Tensor:
    """Return ``operator``, an overload of two tensors, of a tensor and a number; ``NotImplemented`` for others."""
    if isinstance(b, Number) and isinstance(a, Tensor):
        return operator(a, scalar_like(b, a))
    if isinstance(a, Number) and isinstance(b, Tensor):
        return operator(scalar_like(a, b), b)
    return NotImplemented
