"""Gathers and scatters with an index of rank 0, as with an index of one element, which is what lowerings take."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.gather.default)
def gather(x: Tensor, dim: int, index: Tensor, **more: Any) -> Any:
    """Return the element at ``index`` of a vector, of rank 0."""
    if index.dim() or not x.dim():
        return NotImplemented
    return aten.gather(x, dim, index.reshape(1), **more).reshape(())


def _with_vector(operator: Any) -> Decomposition:
    @decomposes(operator)
    def rule(x: Tensor, dim: int, index: Tensor, *rest: Any, **more: Any) -> Any:
        if index.dim() or not x.dim():
            return NotImplemented
        if rest and isinstance(source := rest[0], Tensor):  # of a longer source, the first element is taken
            rest = source.reshape(1) if not source.dim() else aten.slice.Tensor(source, dim, 0, 1), *rest[1:]
        return operator(x, dim, index.reshape(1), *rest, **more)

    return rule


RANK_ZERO_INDICES = (
    gather,
    *map(
        _with_vector,
        (
            *(aten.index_select.default, aten.index_add.default, aten.index_copy.default),
            *(aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce),
            *(aten.scatter_add.default, aten.scatter_reduce.two),
        ),
    ),
)
