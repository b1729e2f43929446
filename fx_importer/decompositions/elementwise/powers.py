"""Rules of powers and roots: with constant exponents, of integers, and where TOSA's power is undefined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor

from fx_importer.decompositions.elementwise.scalars import Number, on_tensors, scalar_like
from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.loops import while_loop
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

_PRODUCTS: Mapping[float, Callable[[Tensor], Tensor]] = {
    1: lambda x: x.clone(),
    2: lambda x: x * x,
    3: lambda x: x * x * x,
}


_FLOAT_ROOTS: Mapping[float, Callable[[Tensor], Tensor]] = {
    0.5: torch.sqrt,
    -0.5: torch.rsqrt,
    -1: torch.reciprocal,
    -2: lambda x: torch.reciprocal(x * x),
}


@decomposes(aten.pow.Tensor_Scalar)
def power(x: Tensor, exponent: float) -> Tensor:
    """Return ``x ** exponent`` for the exponents that eager computes by products and roots; others stay."""
    if isinstance(exponent, int | float):
        if x.dtype == torch.bool:
            x = x.to(torch.result_type(x, exponent))
        # An integer to the power of a float is a float.
        if exponent in _PRODUCTS and torch.result_type(x, exponent) == x.dtype:
            return _PRODUCTS[exponent](x)
        if exponent in _FLOAT_ROOTS and x.is_floating_point():
            return _FLOAT_ROOTS[exponent](x)
        if not x.is_floating_point() and not x.is_complex():
            # No lowering supports powers of integers; computed in floats, the result has the wrong dtype.
            if isinstance(exponent, float):
                return torch.pow(x.to(torch.result_type(x, exponent)), exponent)
            return _integer_power(x, exponent) if exponent >= 0 else NotImplemented
    elif isinstance(exponent, SymInt | SymFloat) and not x.is_floating_point() and not x.is_complex():
        return torch.pow(x, scalar_like(exponent, x))
    return NotImplemented


def _integer_power(x: Tensor, times: int) -> Tensor:
    """Return ``x`` to a non-negative integer power, by repeated squaring."""
    result = torch.ones_like(x)
    while times:
        result = result * x if times & 1 else result
        times >>= 1
        x = x * x if times else x
    return result


@decomposes(aten.pow.Tensor_Tensor)
def power_of_tensors(x: Tensor, exponent: Tensor) -> Tensor:
    """Convert both operands to the float dtype of the result; the lowerings do not convert the base."""
    dtype = torch.result_type(x, exponent)
    if dtype.is_floating_point and (x.dtype != dtype or exponent.dtype != dtype):
        return torch.pow(x.to(dtype), exponent.to(dtype))
    return NotImplemented


@decomposes(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power_of_integers(x: Tensor | int, exponent: Tensor) -> Any:
    """Return the power of integers by repeated squaring, in a loop over the bits of the exponent."""
    dtype = torch.result_type(x, exponent)
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return NotImplemented
    base = x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype)
    base, exponent = torch.broadcast_tensors(base, exponent.to(dtype))

    def more(base: Tensor, left: Tensor, result: Tensor) -> Tensor:
        return torch.any(left > 0)

    def step(base: Tensor, left: Tensor, result: Tensor) -> tuple[Tensor, ...]:
        return base * base, left >> 1, torch.where(left & 1 == 1, result * base, result)

    start = base, torch.clamp(exponent, min=0), torch.ones_like(base)
    result = while_loop(more, step, start)[2]
    inverse = torch.where(base == 1, 1, torch.where(base == -1, 1 - 2 * (exponent & 1), 0)).to(dtype)
    return torch.where(exponent < 0, inverse, result)


def _positive_power(x: Tensor, exponent: Tensor | float, regular: Tensor) -> Tensor:
    """Return the power where ``regular``, and an arbitrary value elsewhere.

    TOSA defines its power for finite operands and positive bases.
    """
    with keep(aten.pow.Tensor_Tensor), keep(aten.pow.Tensor_Scalar):
        base = torch.where(regular, x, 1.0)
        return torch.pow(base, torch.where(regular, exponent, 1.0) if isinstance(exponent, Tensor) else exponent)


@decomposes(aten.pow.Tensor_Scalar)
def tosa_power(x: Tensor, exponent: float) -> Tensor:
    """Return integer powers as products, roots as roots, others by TOSA's power of positive bases."""
    if isinstance(exponent, SymInt):
        return torch.pow(x, scalar_like(exponent, x))
    if is_kept(aten.pow.Tensor_Scalar) or not isinstance(exponent, int | float) or x.is_complex():
        return NotImplemented
    result = power.rule(x, exponent)
    if result is not NotImplemented or not x.is_floating_point():
        return result
    if not math.isfinite(exponent):
        return tosa_power_of_tensors.rule(x, torch.full((), exponent, dtype=x.dtype))
    if exponent == int(exponent) and abs(exponent) <= 64:
        product = _integer_power(x, abs(int(exponent)))
        return product if exponent >= 0 else torch.reciprocal(product)
    if exponent == int(exponent):
        return tosa_power_of_tensors.rule(x, torch.full((), exponent, dtype=x.dtype))
    regular = (x > 0) & (x < math.inf)
    at_zero, at_infinity = (0.0, math.inf) if exponent > 0 else (math.inf, 0.0)
    limit = torch.where(x.abs() == math.inf, at_infinity, torch.where(x == 0, at_zero, math.nan))
    return torch.where(regular, _positive_power(x, exponent, regular), limit.to(x.dtype))


@decomposes(aten.pow.Tensor_Tensor)
def tosa_power_of_tensors(x: Tensor, exponent: Tensor) -> Tensor:
    """Return the IEEE power, by TOSA's, which is defined for finite operands and positive bases."""
    if is_kept(aten.pow.Tensor_Tensor):
        return NotImplemented
    dtype = torch.result_type(x, exponent)
    if not dtype.is_floating_point:
        return NotImplemented
    x, exponent = x.to(dtype), exponent.to(dtype)
    magnitude = x.abs()
    regular = (magnitude > 0) & (magnitude < math.inf) & (exponent.abs() < math.inf)
    limit = torch.where(torch.where(exponent > 0, magnitude > 1, magnitude <= 1), math.inf, 0.0)
    result = torch.where(regular, _positive_power(magnitude, exponent, regular), limit.to(dtype))
    is_nan = torch.isnan(x) | torch.isnan(exponent)
    whole_number = torch.floor(exponent) == exponent
    negative = (x < 0) | (torch.reciprocal(x) < 0)
    odd = whole_number & (torch.floor(exponent * 0.5) * 2.0 != exponent)
    result = torch.where(negative & odd, -result, result)
    result = torch.where(is_nan | (regular & (x < 0) & ~whole_number), math.nan, result)
    return torch.where((exponent == 0) | (x == 1) | ((x == -1) & (exponent.abs() == math.inf)), 1.0, result)


@decomposes(aten.pow.Scalar)
def tosa_power_of_scalar(base: float, exponent: Tensor) -> Tensor:
    """Return a power of a constant base, by TOSA's power at finite exponents."""
    dtype = torch.result_type(base, exponent)
    if not isinstance(base, int | float) or not dtype.is_floating_point:
        return NotImplemented
    exponent = exponent.to(dtype)
    if not 0 < base < math.inf:
        return tosa_power_of_tensors.rule(torch.full((), base, dtype=dtype), exponent)
    regular = exponent.abs() < math.inf
    with keep(aten.pow.Tensor_Tensor):
        result = torch.pow(torch.full((), base, dtype=dtype), torch.where(regular, exponent, 0.0))
    if base == 1:
        return result
    limit = torch.where(exponent > 0 if base > 1 else exponent < 0, math.inf, 0.0)
    return torch.where(regular, result, torch.where(torch.isnan(exponent), math.nan, limit).to(dtype))


@decomposes(aten.sqrt.default)
def tosa_sqrt(x: Tensor) -> Tensor:
    """Return ``1 / rsqrt(x)``: TOSA has no square root, and no power of negative numbers."""
    if x.is_complex():
        return NotImplemented
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.reciprocal(torch.rsqrt(x))


@decomposes(aten.pow.Scalar)
def power_of_scalar(base: Number, exponent: Tensor) -> Tensor:
    """Return ``base ** exponent`` with the base as a tensor."""
    return on_tensors(aten.pow.Tensor_Tensor, base, exponent)


TOSA_POWERS: tuple[Decomposition, ...] = (
    power_of_integers,
    *(tosa_power, tosa_power_of_tensors, tosa_power_of_scalar, tosa_sqrt),
)
"""TOSA has exponentials and logarithms, reciprocal roots, and powers of positive numbers."""
