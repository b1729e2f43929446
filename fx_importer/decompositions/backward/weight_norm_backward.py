"""The gradient of weight normalization, ``g * v / |v|`` with a norm for each index of one axis."""

from __future__ import annotations

from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten._weight_norm_interface_backward.default)
def weight_norm_backward(grad_w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of the direction and of the length (Salimans and Kingma, 2016, equation 3)."""
    axes = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    norms = norms.to(g.dtype)
    grad_g = (grad_w * v).sum(axes, keepdim=True) / norms if axes else grad_w * v / norms
    return g / norms * (grad_w - v * grad_g / norms), grad_g
