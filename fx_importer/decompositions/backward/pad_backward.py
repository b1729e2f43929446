"""Gradients of reflection and replication padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.backward.separable_gradient import separable_gradient
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _pad(operator: OpOverload, forward: Callable[..., Tensor], axes: int) -> Decomposition:
    @decomposes(operator)
    def padding_backward(grad: Tensor, x: Tensor, widths: Sequence[int]) -> Any:
        pairs = [list(widths[2 * k : 2 * k + 2]) for k in reversed(range(axes))]  # widths are from the last axis on
        return separable_gradient(grad, x.shape[-axes:], lambda rows, k: forward(rows, pairs[k]))

    return padding_backward


_REFLECTION = (aten.reflection_pad1d_backward, aten.reflection_pad2d_backward, aten.reflection_pad3d_backward)


_REPLICATION = (aten.replication_pad1d_backward, aten.replication_pad2d_backward, aten.replication_pad3d_backward)


PAD_BACKWARD = (
    *(_pad(packet.default, aten.reflection_pad1d, axes) for axes, packet in enumerate(_REFLECTION, 1)),
    *(_pad(packet.default, aten.replication_pad1d, axes) for axes, packet in enumerate(_REPLICATION, 1)),
)
