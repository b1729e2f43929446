"""Rules of bool tensors: arithmetic, comparisons and clamps by logic; sums, extrema and sorts in int32.

False orders before true, whereas signed single bits order the other way round; a sum of bools is their logical or.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from fx_importer.decompositions.elementwise.scalars import Number
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _on_bools(operator: OpOverload, compute: Callable[[Tensor, Tensor], Tensor]) -> Decomposition:
    """Return the rule of ``operator`` on two bool tensors; on others it stays."""

    @decomposes(operator)
    def rule(a: Tensor, b: Tensor) -> Any:
        return compute(a, b) if a.dtype is b.dtype is torch.bool else NotImplemented

    return rule


def _as_int32(operator: OpOverload) -> Decomposition:
    """Return the rule that computes in int32 for bools; the first result is compared with zero."""

    @decomposes(operator)
    def rule(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.dtype is not torch.bool:
            return NotImplemented
        kwargs = {key: argument.int() if _is_bool(argument) else argument for key, argument in kwargs.items()}
        result = operator(x.int(), *(argument.int() if _is_bool(argument) else argument for argument in args), **kwargs)
        return (result[0] != 0, *result[1:]) if isinstance(result, tuple) else result != 0

    return rule


def _is_bool(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype is torch.bool


@decomposes(aten.index_put.default)
def index_put_accumulate(x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """Accumulate in int32; a write without accumulation stays."""
    if not accumulate or x.dtype is not torch.bool:
        return NotImplemented
    return aten.index_put(x.int(), indices, values.int(), True) != 0


BOOL_ACCUMULATION = (
    *map(_as_int32, (aten.scatter_add.default, aten.scatter_reduce.two, aten.index_add.default)),
    index_put_accumulate,
)


BOOL_EXTREMA = tuple(
    map(
        _as_int32,
        (aten.max.dim, aten.min.dim, aten.max.default, aten.min.default, aten.amax.default, aten.amin.default),
    )
)


BOOL_SORTS = (_as_int32(aten.sort.default),)


@decomposes(aten.add.Tensor, aten.add.Scalar)
def add_bools(a: Tensor, b: Tensor | complex, alpha: complex = 1) -> Tensor:
    """Return the sum of bools, their logical or: in one bit, true and true would be false."""
    if not _are_bools(a, b) or alpha != 1:
        return NotImplemented
    return torch.logical_or(a, b if isinstance(b, Tensor) else torch.full((), b, dtype=torch.bool))


@decomposes(aten.mul.Tensor, aten.mul.Scalar)
def mul_bools(a: Tensor, b: Tensor | complex) -> Tensor:
    """Return the product of bools, their logical and: TOSA does not multiply bools."""
    if not _are_bools(a, b):
        return NotImplemented
    return torch.logical_and(a, b if isinstance(b, Tensor) else torch.full((), b, dtype=torch.bool))


def _are_bools(a: Tensor, b: Tensor | complex) -> bool:
    if not isinstance(a, Tensor):
        return False
    return a.dtype is torch.bool and (isinstance(b, bool) or (isinstance(b, Tensor) and b.dtype is torch.bool))


@decomposes(aten.eq.Tensor)
def eq_bools(a: Tensor, b: Tensor) -> Tensor:
    """Return the negated exclusive or of two bool tensors: TOSA compares numbers only."""
    return torch.logical_not(torch.logical_xor(a, b)) if a.dtype is b.dtype is torch.bool else NotImplemented


@decomposes(aten.ne.Tensor)
def ne_bools(a: Tensor, b: Tensor) -> Tensor:
    """Return the exclusive or of two bool tensors: TOSA compares numbers only."""
    return torch.logical_xor(a, b) if a.dtype is b.dtype is torch.bool else NotImplemented


BOOL_COMPARISONS = (
    _on_bools(aten.lt.Tensor, lambda a, b: torch.logical_and(torch.logical_not(a), b)),
    _on_bools(aten.le.Tensor, lambda a, b: torch.logical_or(torch.logical_not(a), b)),
    _on_bools(aten.gt.Tensor, lambda a, b: torch.logical_and(a, torch.logical_not(b))),
    _on_bools(aten.ge.Tensor, lambda a, b: torch.logical_or(a, torch.logical_not(b))),
)


@decomposes(aten.clamp.default)
def clamp_bools_by_numbers(x: Tensor, min: Number | None = None, max: Number | None = None) -> Any:
    """Clamp bools in the dtype of the result: int64 for integer bounds."""
    bounds = [bound for bound in (min, max) if bound is not None]
    _, dtype = elementwise_dtypes(x, *bounds, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    return torch.clamp(x.to(dtype), min, max) if x.dtype is torch.bool is not dtype else NotImplemented


@decomposes(aten.clamp.Tensor)
def clamp_bools(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Return the disjunction with ``min``, and its conjunction with ``max``, of bools."""
    if any(tensor is not None and tensor.dtype is not torch.bool for tensor in (x, min, max)):
        return NotImplemented
    x = x if min is None else torch.logical_or(x, min)
    return x if max is None else torch.logical_and(x, max)


BOOL_CLAMPS = (
    clamp_bools,
    clamp_bools_by_numbers,
    _on_bools(aten.clamp_min.Tensor, torch.logical_or),
    _on_bools(aten.clamp_max.Tensor, torch.logical_and),
)
