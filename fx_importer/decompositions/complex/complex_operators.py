"""Rules of complex operators that leave no complex arithmetic, for output types with real numbers only.

The operators that `complex_arithmetic` leaves to C++, and those that treat both parts alike. Each rule returns
``NotImplemented`` for real tensors. `fx_importer/canonicalization/complex_pairs.py` represents what is taken apart and
put together here as pairs of real nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from fx_importer.decompositions.complex.complex_arithmetic import (
    BASIC_ARITHMETIC_IN_PARTS,
    Operand,
    complex_matmul,
    complex_of,
    is_complex,
    parts_of,
    parts_of_tensor,
)
from fx_importer.decompositions.complex.complex_functions import COMPLEX_FUNCTIONS
from fx_importer.decompositions.complex.complex_logsumexp import COMPLEX_LOGSUMEXP
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.matmul import matmul
from fx_importer.decompositions.reduction import cumulative
from fx_importer.fx_graph.operators import aten


def _predicate(operator: OpOverload) -> Callable[[Callable[[Tensor, Tensor], Tensor]], Decomposition]:
    """Label a function of both parts that returns bools as a rule of ``operator``."""

    def label(function: Callable[[Tensor, Tensor], Tensor]) -> Decomposition:
        def rule(x: Tensor) -> Any:
            return function(*parts_of_tensor(x)) if x.is_complex() else NotImplemented

        rule.__module__, rule.__qualname__ = function.__module__, function.__qualname__
        return Decomposition((operator,), rule)

    return label


@_predicate(aten.isnan.default)
def isnan(a: Tensor, b: Tensor) -> Tensor:
    """Return whether any part is NaN."""
    return torch.isnan(a) | torch.isnan(b)


@_predicate(aten.isinf.default)
def isinf(a: Tensor, b: Tensor) -> Tensor:
    """Return whether any part is infinite."""
    return torch.isinf(a) | torch.isinf(b)


@_predicate(aten.isfinite.default)
def isfinite(a: Tensor, b: Tensor) -> Tensor:
    """Return whether both parts are finite."""
    return torch.isfinite(a) & torch.isfinite(b)


@_predicate(aten.logical_not.default)
def logical_not(a: Tensor, b: Tensor) -> Tensor:
    """Return whether both parts are zero."""
    return (a == 0) & (b == 0)


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


@decomposes(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Return the norm of the absolute values."""
    if not x.is_complex():
        return NotImplemented
    return aten.linalg_vector_norm(x.abs(), ord, dim, keepdim, dtype=dtype and dtype.to_real())


@decomposes(aten.norm.ScalarOpt_dim)
def norm_dim(x: Tensor, p: float | None, dim: Sequence[int], keepdim: bool = False) -> Any:
    """Return `vector_norm`, by the older operator."""
    return vector_norm(x, 2.0 if p is None else p, dim, keepdim)


@decomposes(aten.norm.Scalar)
def norm(x: Tensor, p: float = 2) -> Any:
    """Return `vector_norm` of all elements."""
    return vector_norm(x, p)


@decomposes(aten.linalg_norm.default, aten.linalg_norm.ord_str)
def linalg_norm(
    x: Tensor, ord: float | str | None = None, dim: Sequence[int] | None = None, *args: Any, **kw: Any
) -> Any:
    """Return the norm of the absolute values; matrix norms of singular values stay."""
    of_matrices = x.dim() == 2 if dim is None else len(dim) == 2
    if not x.is_complex() or (of_matrices and ord in (2, -2, "nuc")):
        return NotImplemented
    if (dtype := kw.get("dtype")) is not None:
        kw["dtype"] = dtype.to_real()
    return torch.linalg.norm(x.abs(), ord, dim, *args, **kw)


@decomposes(aten.isclose.default)
def isclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether ``a == b``, or ``|a - b|`` is finite and at most ``atol + rtol * |b|``."""
    if not is_complex(a, b):
        return NotImplemented
    error, bound = (a - b).abs(), atol + b.abs() * rtol
    close = (a == b) | (torch.isfinite(error) & (error <= bound))
    return close | (torch.isnan(a) & torch.isnan(b)) if equal_nan else close


@decomposes(aten.prod.dim_int)
def prod_dim(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Return the product along an axis, by halving it."""
    kind = dtype or x.dtype
    if not kind.is_complex or not isinstance(x.shape[dim] if x.dim() else 1, int):
        return NotImplemented
    x = x.to(kind).movedim(dim, 0) if x.dim() else x.to(kind).unsqueeze(0)
    if not len(x):
        x = torch.full((1, *x.shape[1:]), 1.0, dtype=kind)
    found = matmul.of_rows(x)
    return found.unsqueeze(dim) if keepdim and x.dim() > 1 else found


@decomposes(aten.cumprod.default)
def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """Return the cumulative product."""
    return cumulative.cumprod_by_scan(x, dim, dtype=dtype) if (dtype or x.dtype).is_complex else NotImplemented


@decomposes(aten.eye.default, aten.eye.m)
def eye(*sizes: int, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Return the identity matrix, made of real numbers first."""
    if dtype is None or not dtype.is_complex:
        return NotImplemented
    del settings
    return torch.eye(*sizes, dtype=dtype.to_real()).to(dtype)


@decomposes(aten.copy.default)
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    """Return ``source`` in the dtype and the shape of ``x``."""
    return source.to(x.dtype).expand(x.shape).clone() if x.is_complex() else NotImplemented


@decomposes(aten.prod.default)
def prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    """Return the product of all elements."""
    return prod_dim(x.reshape(-1), 0, dtype=dtype) if (dtype or x.dtype).is_complex else NotImplemented


def _on_nonzero(operator: OpOverload) -> Decomposition:
    """Return the rule that computes ``operator`` of ``x != 0``."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        if not is_complex(*(each for each in args if isinstance(each, Tensor))):
            return NotImplemented
        return operator(*tree_map(lambda e: e != 0 if is_complex(e) else e, args), **kwargs)

    return Decomposition((operator,), rule)


def _on_both_parts(operator: OpOverload) -> Decomposition:
    """Return the rule that computes ``operator`` of the real parts of its arguments and of the imaginary ones."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(each, Tensor) and each.is_complex() for each in tree_leaves((args, kwargs))):
            return NotImplemented

        def take(part: int) -> Any:
            def of(each: Any) -> Any:
                if isinstance(each, Tensor) and each.is_complex():
                    return torch.view_as_real(each).select(-1, part)
                if isinstance(each, torch.dtype):
                    return each.to_real()
                return (each.real, each.imag)[part] if isinstance(each, complex) else each

            return operator(*tree_map(of, args), **tree_map(of, kwargs))

        return torch.complex(take(0), take(1))

    return Decomposition((operator,), rule)


_LINEAR = (
    *(aten.cumsum.default, aten.scatter_add.default, aten.index_add.default, aten.index_put.default, aten.roll.default),
    *(aten.scatter.src, aten.index_copy.default, aten.masked_scatter.default, aten.put.default, aten.take.default),
    *(aten.index.Tensor, aten.gather.default, aten.index_select.default, aten.flip.default, aten.embedding.default),
    *(
        aten.nan_to_num.default,
        aten.trace.default,
        aten.col2im.default,
        aten.im2col.default,
        aten.masked_select.default,
    ),
)
"""Operators that treat both parts alike."""
_PREDICATES = (
    *(aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims),
    *(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default),
    *(aten.nonzero.default, aten.count_nonzero.default, aten.count_nonzero.dim_IntList),
)

COMPLEX_OPERATORS = (
    *COMPLEX_FUNCTIONS,
    *COMPLEX_LOGSUMEXP,
    *(isnan, isinf, isfinite, logical_not, power, power_of_tensors, ldexp),
    *(vector_norm, norm_dim, norm, linalg_norm, isclose, prod_dim, prod, cumprod, eye, copy),
    *map(_on_nonzero, _PREDICATES),
    *map(_on_both_parts, _LINEAR),
)
"""Rules for a target that has sums and products of complex numbers."""

ALL_COMPLEX_OPERATORS = (*BASIC_ARITHMETIC_IN_PARTS, complex_matmul, *COMPLEX_OPERATORS)
