"""The order of truths, false before true: as signed bits, it would be the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.table import Decomposition, decomposes

aten = torch.ops.aten


def _of_truths(operator: OpOverload, rule: Callable[[Tensor, Tensor], Tensor]) -> Decomposition:
    @decomposes(operator)
    def ordered(a: Tensor, b: Tensor) -> Any:
        return rule(a, b) if a.dtype is b.dtype is torch.bool else NotImplemented

    return ordered


ORDER_OF_TRUTHS = (
    _of_truths(aten.lt.Tensor, lambda a, b: torch.logical_and(torch.logical_not(a), b)),
    _of_truths(aten.le.Tensor, lambda a, b: torch.logical_or(torch.logical_not(a), b)),
    _of_truths(aten.gt.Tensor, lambda a, b: torch.logical_and(a, torch.logical_not(b))),
    _of_truths(aten.ge.Tensor, lambda a, b: torch.logical_or(a, torch.logical_not(b))),
)
