"""Arithmetic of integers that TOSA has no operation for, and that its C++ lowerings compute in too few bits."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.static_shapes import is_empty, is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.pairwise_masks import fits
from fx_importer.decompositions.matmul import matmul
from fx_importer.fx_graph.operators import aten


def _is_integer(x: Any) -> bool:
    return isinstance(x, Tensor) and not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool


@decomposes(aten.sum.dim_IntList)
def long_sum(
    x: Tensor, dim: list[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The sum of integers in 64 bits, as eager computes it; of fewer bits, where they are asked for, in 32."""
    if _is_integer(x) and dtype in (torch.int8, torch.int16):
        return aten.sum.dim_IntList(x.int(), dim, keepdim, dtype=torch.int32).to(dtype)
    if not _is_integer(x) or x.dtype is torch.int64 or dtype not in (None, torch.int64):
        return NotImplemented
    return aten.sum.dim_IntList(x.long(), dim, keepdim)


@decomposes(aten.prod.default, aten.prod.dim_int)
def long_product(x: Tensor, *where: Any, dtype: torch.dtype | None = None) -> Tensor:
    """The product of integers in 64 bits, as eager computes it, of halves again and again: TOSA's is of floats."""
    if not (_is_integer(x) or x.dtype is torch.bool) or dtype not in (None, torch.int64) or not is_static(x):
        return NotImplemented
    dim, keepdim = (*where, False)[:2] if where else (0, False)
    rows = (x if where and x.dim() else x.reshape(-1)).long().movedim(dim, 0)
    found = torch.ones(rows.shape[1:], dtype=torch.int64) if is_empty(rows) else matmul.of_rows(rows)
    return found.unsqueeze(dim) if keepdim and x.dim() else found


@decomposes(aten.cumsum.default)
def long_cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """The running sum of integers in 64 bits, as eager computes it."""
    if not _is_integer(x) or x.dtype is torch.int64 or dtype not in (None, torch.int64):
        return NotImplemented
    return torch.cumsum(x.long(), dim)


@decomposes(aten.clamp.default)
def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Of integers: C++ cuts the bounds off at 32 bits."""
    if not _is_integer(x) or isinstance(min, float) or isinstance(max, float):
        return NotImplemented
    if min is not None:
        x = torch.maximum(x, torch.full((), min, dtype=x.dtype))
    return x if max is None else torch.minimum(x, torch.full((), max, dtype=x.dtype))


@decomposes(aten.relu.default)
def relu(x: Tensor) -> Tensor:
    """The larger of an integer and zero."""
    return torch.maximum(x, torch.zeros((), dtype=x.dtype)) if _is_integer(x) else NotImplemented


@decomposes(aten.remainder.Tensor, aten.remainder.Scalar)
def remainder(x: Tensor, by: Tensor | int) -> Tensor:
    """Of integers: what is left of ``x``, with the sign of ``by``."""
    if not _is_integer(x) or not (_is_integer(by) or type(by) is int):
        return NotImplemented
    x, divisor = _alike(x, by)
    rest = x - torch.div(x, divisor, rounding_mode="trunc") * divisor
    return torch.where((rest != 0) & torch.logical_xor(rest < 0, divisor < 0), rest + divisor, rest)


@decomposes(aten.floor_divide.default, aten.div.Tensor_mode, aten.div.Scalar_mode)
def floor_division(x: Tensor, by: Tensor | int, *, rounding_mode: str | None = "floor") -> Tensor:
    """Of integers: the quotient, rounded down. C++ asks for the sign of the product, which may have more bits."""
    if rounding_mode != "floor" or not _is_integer(x) or not (_is_integer(by) or type(by) is int):
        return NotImplemented
    x, divisor = _alike(x, by)
    quotient = torch.div(x, divisor, rounding_mode="trunc")
    rest = x - quotient * divisor
    return torch.where((rest != 0) & torch.logical_xor(rest < 0, divisor < 0), quotient - 1, quotient)


def _alike(x: Tensor, by: Tensor | int) -> tuple[Tensor, Tensor]:
    """Return both as tensors of the type that arithmetic of them has."""
    dtype = torch.result_type(x, by)
    return x.to(dtype), by.to(dtype) if isinstance(by, Tensor) else torch.full((), by, dtype=dtype)


@decomposes(aten.mm.default, aten.bmm.default)
def product_of_matrices(a: Tensor, b: Tensor) -> Tensor:
    """Of integers of more than 8 bits: products and their sum. Large ones are left as they are, and then refused."""
    if not _is_integer(a) or not is_static(a, b) or not fits(*a.shape, b.shape[-1]):
        return NotImplemented
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2, dtype=a.dtype)


def _in_32_bits(operator: OpOverload) -> Decomposition:
    """Return the rule of arithmetic on integers of 8 and 16 bits, which TOSA has in 32 only."""

    @decomposes(operator)
    def rule(a: Tensor, b: Tensor | int, **kwargs: Any) -> Tensor:
        if not isinstance(a, Tensor) or not (isinstance(b, Tensor) or type(b) is int):
            return NotImplemented
        dtype = torch.result_type(a, b)
        if dtype not in (torch.int8, torch.int16):
            return NotImplemented
        wide = b.int() if isinstance(b, Tensor) else torch.full((), b, dtype=torch.int32)
        return operator(a.int(), wide, **kwargs).to(dtype)

    return rule


def _as_32_bits(operator: OpOverload) -> Decomposition:
    """Return the rule of an order of integers of 8 and 16 bits, or truths; its result may be a truth."""

    @decomposes(operator)
    def rule(*args: Any, **kwargs: Any) -> Any:
        dtypes = {each.dtype for each in args if isinstance(each, Tensor)}
        if not dtypes <= {torch.int8, torch.int16, torch.bool} or any(isinstance(each, float) for each in args):
            return NotImplemented
        result = operator(*(each.int() if isinstance(each, Tensor) else each for each in args), **kwargs)
        return result if result.dtype is torch.bool else result.to(functools.reduce(torch.promote_types, dtypes))

    return rule


TOSA_SHORT = tuple(_in_32_bits(each) for each in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor))
_COMPARISONS = (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
_ORDERS = (aten.maximum, aten.minimum, aten.abs, aten.neg, aten.amax, aten.amin)
TOSA_ORDER = (
    *(_as_32_bits(each) for packet in _COMPARISONS for each in (packet.Tensor, packet.Scalar)),
    *(_as_32_bits(packet.default) for packet in (*_ORDERS, aten.max, aten.min)),
)
TOSA_INTEGERS = (
    *TOSA_SHORT,
    *TOSA_ORDER,
    long_sum,
    long_product,
    long_cumsum,
    clamp,
    relu,
    remainder,
    floor_division,
    product_of_matrices,
)
