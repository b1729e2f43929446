"""Rules that compute half precision in float32 and round once, as eager does on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from fx_importer.decompositions.engine.table import Decomposition, Operator, decomposes, overloads
from fx_importer.fx_graph.operators import aten

HALF_DTYPES = (torch.float16, torch.bfloat16)


_ACCUMULATING = (
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.prod.default, aten.prod.dim_int),
    *(aten.linalg_vector_norm.default, aten.norm.Scalar, aten.norm.ScalarOpt_dim),
    *(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default),
    *(aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default),
    *(aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default),
)


def in_float32(*operators: Operator) -> tuple[Decomposition, ...]:
    """Return the rules that compute ``operators`` in float32 for half precision; other dtypes stay."""
    return tuple(_in_float32(each) for each in overloads(operators))


def _in_float32(operator: OpOverload) -> Decomposition:
    @decomposes(operator)
    def rule(*args: Any, **kwargs: Any) -> Any:
        requested = kwargs.get("dtype")
        dtypes = {each.dtype for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        dtype = requested if requested in HALF_DTYPES else next((each for each in HALF_DTYPES if each in dtypes), None)
        if dtype is None or not dtypes <= {*HALF_DTYPES, torch.float32}:
            return NotImplemented
        args, kwargs = tree_map_only(Tensor, torch.Tensor.float, (args, kwargs))
        if requested in HALF_DTYPES:
            kwargs["dtype"] = torch.float32
        result = operator(*args, **kwargs)
        narrow = requested is None or requested in HALF_DTYPES
        return tree_map_only(Tensor, lambda each: each.to(dtype), result) if narrow else result

    return rule


HALF_ACCUMULATION = in_float32(*_ACCUMULATING)
"""Reductions and pools; accumulated in half precision, a long sum would saturate or drift."""


@decomposes(aten._to_copy.default)
def convert_half_precision(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Convert float16 to bfloat16 and back by way of float32, which TOSA requires."""
    halves = {x.dtype, dtype} == {torch.float16, torch.bfloat16}
    return x.float().to(dtype) if halves else NotImplemented
