"""Gradients of activations that torch does not decompose, or that the C++ lowering computes wrongly.

Eager computes gradients in the promoted dtype of the incoming gradient and the input, as for other operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_SIXTH = torch.tensor(1 / 6, dtype=torch.float32).item()


def _promoted(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in their promoted dtype."""
    dtype = torch.result_type(grad, x)
    return grad.to(dtype), x.to(dtype)


@decomposes(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Tensor:
    """Return ``grad``, zero where ``x`` is between ``-lambd`` and ``lambd``."""
    grad, x = _promoted(grad, x)
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(grad), grad)


@decomposes(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return ``grad / 6`` where ``x`` is between -3 and 3, else 0. Eager rounds 1/6 to float32, in float64 too."""
    grad, x = _promoted(grad, x)
    wide = torch.promote_types(grad.dtype, torch.float32)
    return torch.where((x > -3) & (x < 3), grad.to(wide) * _SIXTH, 0.0).to(grad.dtype)


@decomposes(aten.threshold_backward.default)
def threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Any:
    """Return ``grad``, zero where ``x <= threshold``, on operands of different dtypes or integers.

    For integers, the threshold is truncated.
    """
    if grad.dtype == x.dtype and x.is_floating_point():
        return NotImplemented
    grad, x = _promoted(grad, x)
    return torch.where(x <= (threshold if x.is_floating_point() else int(threshold)), torch.zeros_like(grad), grad)


@decomposes(aten.mish_backward.default)
def mish_backward(grad: Tensor, x: Tensor) -> Any:
    """Return the gradient in the dtype of ``x``, for operands of different dtypes or of half precision."""
    if grad.dtype == x.dtype and x.dtype not in HALF_DTYPES:
        return NotImplemented
    grad, wide = (operand.to(torch.promote_types(operand.dtype, torch.float32)) for operand in _promoted(grad, x))
    slope = torch.tanh(torch.nn.functional.softplus(wide))
    return (grad * (slope + wide * torch.sigmoid(wide) * (1 - slope * slope))).to(x.dtype)


@decomposes(aten.mse_loss_backward.default)
def mse_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    """Return the gradient in the dtype of ``x``, for operands of different dtypes."""
    if grad.dtype == x.dtype == target.dtype:
        return NotImplemented
    _, dtype = elementwise_dtypes(grad, x, target, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    return aten.mse_loss_backward(grad.to(dtype), x.to(dtype), target.to(dtype), reduction).to(x.dtype)


@decomposes(aten.rrelu_with_noise_backward.default)
def rrelu_backward(
    grad: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, self_is_result: bool
) -> Tensor:
    """Return ``grad`` times the slope: ``noise`` in training, otherwise the mean of ``lower`` and ``upper``."""
    if training and upper - lower > 1e-6:
        return grad * noise
    grad, x = _promoted(grad, x)
    return torch.where(x > 0, grad, grad * ((lower + upper) / 2))


PROMOTED_BACKWARD = (threshold_backward, mish_backward, mse_loss_backward)
"""Rules of operands of different dtypes, for which torch's decompositions return another dtype."""
