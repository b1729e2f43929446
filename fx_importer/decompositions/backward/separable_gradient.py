"""Gradients of linear operators that are separable by axis: average pools, resizing, padding.

Along one axis such an operator is a matrix, and its gradient a matmul with the transpose. The matrix is the operator
applied to the identity matrix. Infinities and NaNs are left out of the matmul, where zero times infinity would be NaN:
matmuls of their places tell which elements eager adds them to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

AxisOperator = Callable[[Tensor, int], Tensor]
"""A function that applies an operator to the last axis of [rows, 1, size], as along the k-th of its axes."""

Mixed = Callable[[int], Tensor]
"""A function of k that tells where along the k-th axis an infinite gradient becomes NaN, bool [size, outputs].

Eager multiplies it by 0 there, or adds its products with weights of both signs.
"""


def separable_gradient(grad: Tensor, sizes: Sequence[int], along: AxisOperator, mixed: Mixed | None = None) -> Tensor:
    """Return the gradient of the operand, whose last axes have ``sizes``, from the gradient of the result.

    Args:
        grad: the gradient of the result, floating or complex.
        sizes: sizes of the operand's last axes.
        along: the operator along an axis. Its weights are 0 or more, unless ``mixed`` is passed.
        mixed: where an infinite gradient becomes NaN.
    """
    if grad.is_complex():  # the weights are real
        parts = (separable_gradient(part, sizes, along, mixed) for part in (torch.real(grad), torch.imag(grad)))
        return torch.complex(*parts)
    for k, size in enumerate(sizes):
        axis = grad.dim() - len(sizes) + k
        places = torch.arange(size)
        unit = (places.unsqueeze(-1) == places).to(grad.dtype)
        matrix = along(unit.unsqueeze(1), k).squeeze(1)  # [size, outputs]
        grad = _product(grad.movedim(axis, -1), matrix, mixed and mixed(k)).movedim(-1, axis)
    return grad


def _product(grad: Tensor, matrix: Tensor, mixed: Tensor | None) -> Tensor:
    """Return the sums over ``grad`` [..., outputs] by ``matrix`` [size, outputs], of the elements that it reads."""
    infinity = float("inf")
    missing = torch.isnan(grad)  # as both infinities at once
    above, below = ((missing | (grad == sign * infinity)).to(grad.dtype) for sign in (1, -1))
    result = torch.where(torch.isfinite(grad), grad, 0) @ matrix.transpose(0, 1)
    if mixed is None:
        raised, lowered = above @ matrix.transpose(0, 1), below @ matrix.transpose(0, 1)
    else:
        positive, negative = (((sign * matrix > 0) | mixed).to(grad.dtype).transpose(0, 1) for sign in (1, -1))
        raised = above @ positive + below @ negative
        lowered = above @ negative + below @ positive
    result = torch.where(raised > 0, result + infinity, result)
    return torch.where(lowered > 0, result - infinity, result)
