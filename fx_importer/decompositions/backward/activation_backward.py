"""Gradients of activations that torch does not decompose, or that the C++ lowering computes wrongly."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Tensor:
    """Return ``grad``, zero where ``x`` is between ``-lambd`` and ``lambd``."""
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(grad), grad)


@decomposes(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return ``grad / 6`` where ``x`` is between -3 and 3, else 0. Eager rounds 1/6 to float32, in float64 too."""
    sixth = torch.tensor(1 / 6, dtype=torch.float32).item()
    wide = torch.promote_types(grad.dtype, torch.float32)
    return torch.where((x > -3) & (x < 3), grad.to(wide) * sixth, 0.0).to(grad.dtype)


@decomposes(aten.rrelu_with_noise_backward.default)
def rrelu_backward(
    grad: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, self_is_result: bool
) -> Tensor:
    """Return ``grad`` times the slope: ``noise`` in training, otherwise the mean of ``lower`` and ``upper``."""
    if training and upper - lower > 1e-6:
        return grad * noise
    return torch.where(x > 0, grad, grad * ((lower + upper) / 2))
