"""Rules that broadcast operands to one shape, for backends that do not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _broadcast_operands(operator: OpOverload[..., Any]) -> Decomposition:
    """Return the rule that broadcasts the operands of ``operator``."""

    @decomposes(operator)
    def rule(a: Tensor, b: Tensor) -> Any:
        return NotImplemented if _have_same_shape(a, b) else operator(*torch.broadcast_tensors(a, b))

    return rule


@decomposes(aten.clamp.Tensor)
def clamp_broadcast(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Any:
    """Clamp to bounds of another shape by maximum and minimum, which broadcast."""
    if all(bound is None or _have_same_shape(bound, x) for bound in (min, max)):
        return NotImplemented
    x = x if min is None else torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


def _have_same_shape(a: Tensor, b: Tensor) -> bool:
    """Return whether the shapes are equal, whatever the values of dynamic sizes."""
    return a.dim() == b.dim() and all(statically_known_true(m == n) for m, n in zip(a.shape, b.shape, strict=True))


BROADCASTING = (
    clamp_broadcast,
    _broadcast_operands(aten.bitwise_left_shift.Tensor),
    _broadcast_operands(aten.bitwise_right_shift.Tensor),
    _broadcast_operands(aten.clamp_min.Tensor),
    _broadcast_operands(aten.clamp_max.Tensor),
    _broadcast_operands(aten.complex.default),
)
