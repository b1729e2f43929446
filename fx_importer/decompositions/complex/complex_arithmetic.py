"""Rules of basic arithmetic of complex tensors, on their real and imaginary parts.

The C++ lowerings to linalg multiply complex numbers, and take them apart; almost all else is an error, or wrong. Each
rule returns ``NotImplemented`` for real tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

Operand = Tensor | int | float | complex
Part = Tensor | float


def is_complex(*operands: Any) -> bool:
    """Return whether any operand is complex, and all are tensors or numbers (none symbolic)."""
    known = all(isinstance(x, Tensor | int | float | complex) for x in operands)
    return known and any(x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in operands)


def parts_of(x: Operand) -> tuple[Part, Part]:
    """Return the real and the imaginary part."""
    if not isinstance(x, Tensor):
        return (x.real, x.imag) if isinstance(x, complex) else (float(x), 0.0)
    if not x.is_complex():
        return x, 0.0
    return parts_of_tensor(x)


def parts_of_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary part of a complex tensor."""
    pairs = torch.view_as_real(x)
    return pairs.select(-1, 0), pairs.select(-1, 1)


def complex_of(real: Part, imaginary: Part, dtype: torch.dtype) -> Tensor:
    """Return a complex tensor of ``dtype`` from two parts, at least one of which is a tensor."""
    shape = torch.broadcast_shapes(*(part.shape for part in (real, imaginary) if isinstance(part, Tensor)))
    to = dtype.to_real()
    parts = [p.to(to) if isinstance(p, Tensor) else torch.full((), p, dtype=to) for p in (real, imaginary)]
    return torch.complex(parts[0].expand(shape), parts[1].expand(shape))


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


@decomposes(aten.div.Tensor, aten.div.Scalar)
def div(a: Operand, b: Operand) -> Any:
    """Return ``a * conj(b) / |b|**2``.

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
        return a * (1 / b)
    scale = torch.maximum(br.abs(), bi.abs())
    br, bi = br / scale, bi / scale
    norm = (br * br + bi * bi) * scale
    return complex_of((ar * br + ai * bi) / norm, (ai * br - ar * bi) / norm, dtype)


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


@decomposes(aten.exp.default)
def exp(x: Tensor) -> Any:
    """Return ``exp(real) * (cos(imaginary) + i sin(imaginary))``."""
    if not x.is_complex():
        return NotImplemented
    real, imaginary = parts_of_tensor(x)
    magnitude = torch.exp(real)
    return torch.complex(magnitude * torch.cos(imaginary), magnitude * torch.sin(imaginary))


@decomposes(aten._to_copy.default)
def convert(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Convert to real numbers by the real part, to bool by whether either part is nonzero; from real ones, by parts."""
    del settings
    if not x.is_complex() and dtype is not None and dtype.is_complex and x.dtype is not dtype.to_real():
        real = x.to(dtype.to_real())
        return torch.complex(real, torch.zeros_like(real))
    if not x.is_complex() or dtype is None or dtype.is_complex:
        return NotImplemented
    if dtype == torch.bool:
        return torch.any(torch.view_as_real(x) != 0, -1)
    return torch.view_as_real(x).select(-1, 0).to(dtype)


@decomposes(aten.eq.Tensor, aten.eq.Scalar)
def eq(a: Operand, b: Operand) -> Any:
    """Return whether both parts are equal."""
    if not is_complex(a, b):
        return NotImplemented
    (ar, ai), (br, bi) = parts_of(a), parts_of(b)
    return torch.logical_and(torch.eq(ar, br), torch.eq(ai, bi))  # pyright: ignore[reportCallIssue, reportArgumentType]


@decomposes(aten.ne.Tensor, aten.ne.Scalar)
def ne(a: Operand, b: Operand) -> Any:
    """Return whether any part differs."""
    return eq(a, b).logical_not() if is_complex(a, b) else NotImplemented


@decomposes(aten.sum.dim_IntList)
def sum_dim(x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the sums of both parts."""
    if not x.is_complex() or (dtype is not None and dtype != x.dtype):
        return NotImplemented
    axes = [axis % max(x.dim(), 1) for axis in dim or range(x.dim())]
    return torch.complex(*(torch.sum(part, axes, keepdim) for part in parts_of_tensor(x)))


@decomposes(aten.sum.default)
def sum_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    """Return `sum_dim` over all axes."""
    return sum_dim(x, None, dtype=dtype)


@decomposes(aten.mean.dim)
def mean_dim(x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the means of both parts."""
    if not x.is_complex() or (dtype is not None and dtype != x.dtype):
        return NotImplemented
    axes = [axis % max(x.dim(), 1) for axis in dim or range(x.dim())]
    return torch.complex(*(torch.mean(part, axes, keepdim) for part in parts_of_tensor(x)))


@decomposes(aten.mean.default)
def mean_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    """Return `mean_dim` over all axes."""
    return mean_dim(x, None, dtype=dtype)


def _on_parts(*operators: Any, of: Callable[..., Tensor]) -> Decomposition:
    """Return the rule that computes ``of`` on each part."""

    @decomposes(*operators)
    def rule(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not x.is_complex():
            return NotImplemented
        return torch.complex(*(of(part, *args, **kwargs) for part in parts_of_tensor(x)))

    return rule


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


@decomposes(aten.mm.default, aten.bmm.default)
def complex_matmul(a: Tensor, b: Tensor) -> Any:
    """Return the matrix product, as four products of parts."""
    if not a.is_complex():
        return NotImplemented
    (ar, ai), (br, bi) = (parts_of_tensor(each) for each in (a, b))
    times = torch.mm if a.dim() == 2 else torch.bmm
    return torch.complex(times(ar, br) - times(ai, bi), times(ar, bi) + times(ai, br))


BASIC_ARITHMETIC = (
    *(add, sub, rsub, mul, div, reciprocal, absolute, conjugate, exp, convert, eq, ne),
    *(sum_dim, sum_all, mean_dim, mean_all),
    _on_parts(aten.neg.default, of=torch.neg),
)


@decomposes(aten.view_as_complex.default)
def view_as_complex(x: Tensor) -> Tensor:
    """Return complex numbers of the two elements along the last axis, the real part first."""
    return torch.complex(x[..., 0], x[..., 1])


BASIC_ARITHMETIC_IN_PARTS = (*(each for each in BASIC_ARITHMETIC if each is not mul), mul_of_two)
"""Rules for a target without products of complex numbers that can make them of two parts."""
