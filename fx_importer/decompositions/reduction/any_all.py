"""``any`` and ``all`` over several axes, as reductions of single ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _over_axes(name: str) -> Decomposition:
    over_all, over_one = getattr(aten, name).default, getattr(aten, name).dim

    @decomposes(getattr(aten, name).dims)
    def rule(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        """Reduce the truth of the elements over ``dim``: all axes if it is None, and none if it is empty."""
        result = x if x.dtype is torch.bool else x != 0
        axes = sorted({axis % x.dim() for axis in (range(x.dim()) if dim is None else dim)}) if x.dim() else []
        if len(axes) == x.dim() > 0 and not keepdim:
            result = over_all(result)
        else:
            for axis in reversed(axes):
                result = over_one(result, axis, keepdim)
        result = result.clone() if result is x else result
        return result.to(torch.uint8) if x.dtype is torch.uint8 else result

    return rule


@decomposes(aten._is_all_true.default)
def is_all_true(x: Tensor) -> Tensor:
    """Reduce bools, as the argument checks of ``torch.distributions`` do."""
    return aten.all.default(x)


@decomposes(aten._is_any_true.default)
def is_any_true(x: Tensor) -> Tensor:
    """Reduce bools."""
    return aten.any.default(x)


ANY_ALL = (_over_axes("any"), _over_axes("all"), is_all_true, is_any_true)
