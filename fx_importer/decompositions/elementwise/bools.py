"""Rules of accumulation, extrema and sorts of bool tensors, in int32.

False orders before true, whereas signed single bits order the other way round; a sum of bools is their logical or.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def on_bools(operator: OpOverload, compute: Callable[[Tensor, Tensor], Tensor]) -> Decomposition:
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
        kwargs = {key: each.int() if _is_bool(each) else each for key, each in kwargs.items()}
        result = operator(x.int(), *(each.int() if _is_bool(each) else each for each in args), **kwargs)
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
