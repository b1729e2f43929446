"""Decompositions of ``*_copy`` operators to their views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.strided_views import diagonal
from fx_importer.fx_graph.operators import aten


def _copy(operator: OpOverload, view: Callable[..., Any]) -> Decomposition:
    """Return the rule that clones the result of ``view``; the clones are dropped as identities later."""

    @decomposes(operator)
    def rule(*args: Any, **kwargs: Any) -> Any:
        return tree_map(torch.clone, view(*args, **kwargs))

    return rule


COPIES = (
    _copy(aten._reshape_alias_copy.default, lambda x, size, stride: aten.reshape.default(x, size)),
    _copy(aten.as_strided_copy.default, aten.as_strided.default),
    _copy(aten.diagonal_copy.default, diagonal),
    _copy(aten.detach_copy.default, aten.detach.default),
    _copy(aten.narrow_copy.default, aten.narrow.default),
    _copy(aten.permute_copy.default, aten.permute.default),
    _copy(aten.select_copy.int, aten.select.int),
    _copy(aten.slice_copy.Tensor, aten.slice.Tensor),
    _copy(aten.split_copy.Tensor, aten.split.Tensor),
    _copy(aten.unbind_copy.int, aten.unbind.int),
    _copy(aten.view_as_complex_copy.default, aten.view_as_complex.default),
    _copy(aten.view_as_real_copy.default, aten.view_as_real.default),
    _copy(aten.view_copy.default, aten.reshape.default),
    _copy(aten.view_copy.dtype, aten.view.dtype),
)
