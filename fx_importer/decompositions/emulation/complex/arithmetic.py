"""Rules of arithmetic of complex tensors, on their real and imaginary parts.

The C++ lowerings to linalg multiply complex numbers, and take them apart; almost all else is an error, or wrong. Each
rule returns ``NotImplemented`` for real tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import (
    Operand,
    complex_of,
    is_complex,
    parts_of,
    parts_of_tensor,
)
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _add_parts(a: Operand, b: Operand, sign: float) -> Tensor:
    (ar, ai), (br, bi) = parts_of(a), parts_of(b)
    return complex_of(ar + sign * br, ai + sign * bi, torch.result_type(a, b))


@decomposes(aten.add.Tensor, aten.add.Scalar)
def add(a: Operand, b: Operand, alpha: complex = 1) -> Any:
    """Return ``a + alpha * b``."""
    if not is_complex(a, b, alpha):
        return NotImplemented
    return _add_parts(a, b if alpha == 1 else b * alpha, 1.0)


@decomposes(aten.sub.Tensor, aten.sub.Scalar)
def sub(a: Operand, b: Operand, alpha: complex = 1) -> Any:
    """Return ``a - alpha * b``."""
    if not is_complex(a, b, alpha):
        return NotImplemented
    return _add_parts(a, b if alpha == 1 else b * alpha, -1.0)


@decomposes(aten.rsub.Scalar)
def rsub(a: Operand, b: Operand, alpha: complex = 1) -> Any:
    """Return ``b - alpha * a``."""
    return sub(b, a, alpha)


@decomposes(aten.mul.Tensor, aten.mul.Scalar)
def mul(a: Operand, b: Operand) -> Any:
    """Return the product with a number or a real tensor; of two complex tensors it stays."""
    if not is_complex(a, b) or (isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype):
        return NotImplemented
    (ar, ai), (br, bi) = parts_of(a), parts_of(b)
    dtype = torch.result_type(a, b)
    if not isinstance(b, complex) and not (isinstance(b, Tensor) and b.is_complex()):
        return complex_of(ar * br, ai * br, dtype)
    if not isinstance(a, complex) and not (isinstance(a, Tensor) and a.is_complex()):
        return complex_of(ar * br, ar * bi, dtype)
    return complex_of(ar * br - ai * bi, ar * bi + ai * br, dtype)


@decomposes(aten.mul.Tensor, aten.mul.Scalar)
def mul_of_two(a: Operand, b: Operand) -> Any:
    """Return the product, of two complex tensors too, for a target that does not multiply them."""
    if not is_complex(a, b):
        return NotImplemented
    result = mul(a, b)
    if result is not NotImplemented:
        return result
    (ar, ai), (br, bi) = parts_of(a), parts_of(b)
    return complex_of(ar * br - ai * bi, ar * bi + ai * br, torch.result_type(a, b))


@decomposes(aten.div.Tensor, aten.div.Scalar)
def div(a: Operand, b: Operand) -> Any:
    """Return ``a * conj(b) / |b|**2``; each part of ``a`` divided by zero where ``b`` is zero, as eager does.

    ``b`` is scaled by its larger part first, so that the square does not overflow.
    """
    if not is_complex(a, b):
        return NotImplemented
    dtype = torch.result_type(a, b)
    (ar, ai), (br, bi) = parts_of(a), parts_of(b)
    if not (b.is_complex() if isinstance(b, Tensor) else isinstance(b, complex)):
        return complex_of(ar / br, ai / br, dtype)
    if not isinstance(br, Tensor) or not isinstance(bi, Tensor):
        assert not isinstance(b, Tensor)
        return a * (1 / b) if b else complex_of(ar / 0.0, ai / 0.0, dtype)
    br, bi = br.to(dtype.to_real()), bi.to(dtype.to_real())
    scale = torch.maximum(br.abs(), bi.abs())
    br, bi = br / scale, bi / scale
    norm = (br * br + bi * bi) * scale
    parts = zip((ar, ai), (ar * br + ai * bi, ai * br - ar * bi), strict=True)
    real, imaginary = (torch.where(scale == 0, part / scale, product / norm) for part, product in parts)
    return complex_of(real, imaginary, dtype)


@decomposes(aten.reciprocal.default)
def reciprocal(x: Tensor) -> Any:
    """Return ``1 / x``."""
    return div(1, x)


@decomposes(aten.abs.default)
def absolute(x: Tensor) -> Any:
    """Return the absolute value, scaled by the larger part so that no square overflows."""
    if not x.is_complex():
        return NotImplemented
    real, imaginary = (part.abs() for part in parts_of_tensor(x))
    large, small = torch.maximum(real, imaginary), torch.minimum(real, imaginary)
    ratio = torch.where(large == 0, large, small / large)
    length = large * torch.sqrt(1 + ratio * ratio)
    return torch.where(large == torch.inf, large, length)


@decomposes(aten._conj.default, aten._conj_physical.default, aten.conj_physical.default)
def conjugate(x: Tensor) -> Any:
    """Return the complex conjugate."""
    if not x.is_complex():
        return NotImplemented
    real, imaginary = parts_of_tensor(x)
    return torch.complex(real, -imaginary)


@decomposes(aten.pow.Tensor_Scalar)
def power(x: Operand, exponent: complex) -> Any:
    """Return integer powers by repeated squaring; others as `power_of_tensors`."""
    if not is_complex(x, exponent):
        return NotImplemented
    if isinstance(exponent, int | float) and exponent == 0.5:
        return torch.sqrt(x)  # type: ignore[arg-type]
    whole = isinstance(exponent, int | float) and abs(exponent) <= 64 and exponent == int(exponent)
    return _integer_power(x, int(exponent.real)) if whole and isinstance(x, Tensor) else power_of_tensors(x, exponent)


def _integer_power(x: Tensor, times: int) -> Tensor:
    result, left = None, abs(times)
    while left:
        if left & 1:
            result = x if result is None else result * x
        left >>= 1
        x = x * x if left else x
    if result is None:
        return torch.full_like(x, 1.0)
    return torch.reciprocal(result) if times < 0 else result.clone()


@decomposes(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power_of_tensors(x: Operand, exponent: Operand) -> Any:
    """Return ``exp(exponent * log(x))``.

    The power of zero is 1 for an exponent of zero, 0 for one with a positive real part, and NaN otherwise.
    """
    if not is_complex(x, exponent):
        return NotImplemented
    dtype = torch.result_type(x, exponent)
    base = x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype)
    real_exponent, _ = parts_of(exponent)
    if isinstance(real_exponent, Tensor):
        edge = torch.where(exponent == 0, 1.0, torch.where(real_exponent > 0, 0.0, math.nan))  # pyright: ignore
    else:
        edge = 1.0 if exponent == 0 else 0.0 if real_exponent > 0 else math.nan
    at_zero = base == 0
    result = torch.exp(torch.log(torch.where(at_zero, 1.0, base)) * exponent)
    real, imaginary = parts_of_tensor(result)
    return complex_of(torch.where(at_zero, edge, real), torch.where(at_zero, edge * 0.0, imaginary), dtype)


@decomposes(aten.ldexp.Tensor)
def ldexp(x: Tensor, exponent: Tensor) -> Any:
    """Return ``x * 2**exponent``."""
    return x * torch.pow(2.0, exponent) if is_complex(x, exponent) else NotImplemented


@decomposes(aten.mm.default, aten.bmm.default)
def complex_matmul(a: Tensor, b: Tensor) -> Any:
    """Return the matrix product, as four products of parts."""
    if not a.is_complex():
        return NotImplemented
    (ar, ai), (br, bi) = (parts_of_tensor(operand) for operand in (a, b))
    times = torch.mm if a.dim() == 2 else torch.bmm
    return torch.complex(times(ar, br) - times(ai, bi), times(ar, bi) + times(ai, br))


def _on_parts(*operators: Any, of: Callable[..., Tensor]) -> Decomposition:
    """Return the rule that computes ``of`` on each part."""

    @decomposes(*operators)
    def rule(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not x.is_complex():
            return NotImplemented
        return torch.complex(*(of(part, *args, **kwargs) for part in parts_of_tensor(x)))

    return rule


neg = _on_parts(aten.neg.default, of=torch.neg)
