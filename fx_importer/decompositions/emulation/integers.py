"""Rules of integer arithmetic that TOSA lacks, or that its C++ lowerings compute in too few bits."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.elementwise.scalars import number_of_dtype
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.pairwise_masks import fits
from fx_importer.fx_graph.operators import aten


def is_integer(x: Any) -> bool:
    """Return whether ``x`` is an integer tensor; bools are not."""
    return isinstance(x, Tensor) and not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool


@decomposes(aten.mm.default, aten.bmm.default)
def matmul_integers(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product of integers as a sum of products; TOSA multiplies matrices of int8.

    Products whose intermediate exceeds the size limit stay, and are reported as unsupported.
    """
    if not is_integer(a) or not fits(*a.shape, b.shape[-1]):
        return NotImplemented
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2, dtype=a.dtype)


def _arithmetic_in_int32(operator: OpOverload) -> Decomposition:
    """Return the rule of arithmetic on int8 and int16, which TOSA has in 32 bits only."""

    @decomposes(operator)
    def rule(a: Tensor, b: Tensor | int, **kwargs: Any) -> Tensor:
        if not isinstance(a, Tensor) or not isinstance(b, Tensor | int):
            return NotImplemented
        dtype = torch.result_type(a, b)
        if dtype not in (torch.int8, torch.int16):
            return NotImplemented
        wide = b.int() if isinstance(b, Tensor) else torch.full((), number_of_dtype(int(b), dtype), dtype=torch.int32)
        return operator(a.int(), wide, **kwargs).to(dtype)

    return rule


def _comparison_in_int32(operator: OpOverload) -> Decomposition:
    """Return the rule of comparisons and extrema of int8, int16 and bool, computed in int32."""

    @decomposes(operator)
    def rule(*args: Any, **kwargs: Any) -> Any:
        dtypes = {argument.dtype for argument in args if isinstance(argument, Tensor)}
        if not dtypes <= {torch.int8, torch.int16, torch.bool} or any(isinstance(argument, float) for argument in args):
            return NotImplemented
        dtype = functools.reduce(torch.promote_types, dtypes)
        args = tuple(number_of_dtype(argument, dtype) if type(argument) is int else argument for argument in args)
        narrow = all(-(1 << 31) <= argument < 1 << 31 for argument in args if isinstance(argument, int))
        wide = torch.int32 if narrow else torch.int64  # bools are compared with any integer
        result = operator(
            *(argument.to(wide) if isinstance(argument, Tensor) else argument for argument in args), **kwargs
        )
        return result if result.dtype is torch.bool else result.to(dtype)

    return rule


INT32_ARITHMETIC = tuple(
    _arithmetic_in_int32(operator) for operator in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor)
)


def _of_int8(operator: OpOverload) -> Decomposition:
    """Return the rule of ``operator`` on int8 and uint8, computed in int32: the last 8 bits are the same."""

    @decomposes(operator)
    def rule(*args: Any, **kwargs: Any) -> Any:
        dtypes = {argument.dtype for argument in args if isinstance(argument, Tensor)}
        if len(dtypes) != 1 or not dtypes <= {torch.int8, torch.uint8}:
            return NotImplemented
        wide = (argument.int() if isinstance(argument, Tensor) else argument for argument in args)
        return operator(*wide, **kwargs).to(dtypes.pop())

    return rule


INT8_IN_INT32 = tuple(
    map(
        _of_int8,
        (
            *(aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default, aten.mv.default),
            *(aten.dot.default, aten.convolution.default, aten.max.default, aten.min.default),
        ),
    )
)
"""Products, convolutions and extrema of 8-bit integers."""


_COMPARISONS = (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)


_EXTREMA = (aten.maximum, aten.minimum, aten.abs, aten.neg, aten.amax, aten.amin)


INT32_COMPARISONS = (
    *(_comparison_in_int32(overload) for packet in _COMPARISONS for overload in (packet.Tensor, packet.Scalar)),
    *(_comparison_in_int32(packet.default) for packet in (*_EXTREMA, aten.max, aten.min)),
)
