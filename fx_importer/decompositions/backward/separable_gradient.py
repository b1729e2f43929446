"""Gradients of linear operators that are separable by axis: average pools, resizing, padding.

Along one axis such an operator is a matrix, and its gradient a matmul with the transpose. The matrix is the operator
applied to the identity matrix. As zero times infinity is NaN, an infinite gradient spreads to its whole row and column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

AxisOperator = Callable[[Tensor, int], Tensor]
"""A function that applies an operator to the last axis of [rows, 1, size], as along the k-th of its axes."""


def separable_gradient(grad: Tensor, sizes: Sequence[int], along: AxisOperator) -> Tensor:
    """Return the gradient of the operand, whose last axes have ``sizes``, from the gradient of the result."""
    for k, size in enumerate(sizes):
        axis = grad.dim() - len(sizes) + k
        places = torch.arange(size)
        unit = (places.unsqueeze(-1) == places).to(grad.dtype)
        matrix = along(unit.unsqueeze(1), k).squeeze(1)  # [size, outputs]
        grad = (grad.movedim(axis, -1) @ matrix.transpose(0, 1)).movedim(-1, axis)
    return grad
