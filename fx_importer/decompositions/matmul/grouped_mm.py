"""Decomposition of grouped matmuls, in which each group of rows has its own matrix (mixture of experts)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten._grouped_mm.default)
def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the products of groups; group ``i`` ends before ``offs[i]``, on the axis that has no group axis.

    That may be the rows of ``a`` (shapes ``(s, k)`` and ``(g, k, n)``), the columns of ``b`` (``(g, m, k)`` and
    ``(k, s)``), or the axis that is summed over (``(m, s)`` and ``(s, n)``). Group
    sizes are data-dependent, so each group's matrix is multiplied with all rows and masked. Outside all groups is 0.
    """
    if offs is None:
        product = torch.bmm(a, b)
    elif b.dim() == 3:
        member = group_masks(offs, a.shape[0])
        product = torch.where(member.unsqueeze(-1), torch.matmul(a, b), 0.0).sum(0)
    elif a.dim() == 3:
        member = group_masks(offs, b.shape[1])
        product = torch.where(member.unsqueeze(1), torch.matmul(a, b), 0.0).sum(0)
    else:
        member = group_masks(offs, a.shape[1])
        rows, columns = torch.where(member.unsqueeze(1), a, 0.0), torch.where(member.unsqueeze(-1), b, 0.0)
        product = torch.bmm(rows, columns)
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


def group_masks(offs: Tensor, size: int) -> Tensor:
    """Return the mask of the positions in each group: ``(groups, size)``."""
    place = torch.arange(size, dtype=offs.dtype, device=offs.device)
    before_the_end = place < offs.unsqueeze(-1)
    before_the_start = torch.cat([torch.zeros_like(before_the_end[:1]), before_the_end[:-1]])
    return before_the_end & ~before_the_start


def grouped_mm_backward(a: Tensor, b: Tensor, offs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``a``, of shape ``(s, k)``, and ``b``, ``(g, k, n)``, of ``grouped_mm(a, b, offs)``."""
    return grouped_mm.rule(gradient, b.mT, offs), grouped_mm.rule(a.mT, gradient, offs)


LIBRARY_RULES: Mapping[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": grouped_mm.rule,
    "transformers::grouped_mm_fallback_backward": grouped_mm_backward,
}
"""Rules for opaque operators of other libraries, by their names, as the library may not be installed."""
