"""Gradients of max pools, routed to the positions of the maxima."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.interior_padding import per_axis, place_strided
from fx_importer.fx_graph.operators import aten


def _max_pool(operator: OpOverload, axes: int) -> Decomposition:
    @decomposes(operator)
    def max_pool_backward(
        grad: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil: bool,
        indices: Tensor,
    ) -> Any:
        """Return the gradient: along each axis, the k-th elements of all windows are placed with stride, and added."""
        if not is_static(grad, x):
            return NotImplemented
        kernel, padding, dilation = (per_axis(each, axes) for each in (kernel, padding, dilation))
        stride = per_axis(stride, axes) if len(stride) else kernel
        sizes, outputs = list(x.shape[-axes:]), list(grad.shape[-axes:])
        batch = math.prod(x.shape[:-axes])
        flat = torch.zeros((), dtype=torch.int32)
        for k in range(axes):  # [k1, … kn, o1, … on]: the flat index of each element of each window
            inside = (torch.arange(kernel[k], dtype=torch.int32) * dilation[k]).reshape(-1, *[1] * (2 * axes - 1 - k))
            window = (torch.arange(outputs[k], dtype=torch.int32) * stride[k]).reshape(-1, *[1] * (axes - 1 - k))
            flat = flat * sizes[k] + (inside + window - padding[k])
        flat = flat.reshape(1, math.prod(kernel), math.prod(outputs))
        mine = indices.to(torch.int32).reshape(batch, 1, -1) == flat
        share = torch.where(mine, grad.reshape(batch, 1, -1), torch.zeros((), dtype=grad.dtype))
        done = 1
        for k in reversed(range(axes)):
            outer, before = math.prod(kernel[:k]), math.prod(outputs[:k])
            share = share.reshape(batch * outer, kernel[k], before, outputs[k], done)
            parts = [
                place_strided(share.select(1, i), 2, i * dilation[k] - padding[k], stride[k], sizes[k])
                for i in range(kernel[k])
            ]
            share = sum(parts[1:], parts[0])
            done *= sizes[k]
        return share.reshape(x.shape)

    return max_pool_backward


def _scatter_by_indices(operator: OpOverload, axes: int) -> Decomposition:
    @decomposes(operator)
    def backward(grad: Tensor, x: Tensor, *arguments: Any) -> Any:
        """Return the gradient by a scatter, for irregular windows. The last argument is the indices."""
        indices: Tensor = arguments[-1]
        if not is_static(grad, x):
            return NotImplemented
        batch, size = math.prod(x.shape[:-axes]), math.prod(x.shape[-axes:])
        zeros = torch.zeros((batch, size), dtype=grad.dtype)
        return torch.scatter_add(zeros, 1, indices.reshape(batch, -1), grad.reshape(batch, -1)).reshape(x.shape)

    return backward


MAX_POOL_BACKWARD = (
    _max_pool(aten.max_pool2d_with_indices_backward.default, 2),
    _max_pool(aten.max_pool3d_with_indices_backward.default, 3),
    _scatter_by_indices(aten.adaptive_max_pool2d_backward.default, 2),
    _scatter_by_indices(aten.adaptive_max_pool3d_backward.default, 3),
    _scatter_by_indices(aten.fractional_max_pool2d_backward.default, 2),
    _scatter_by_indices(aten.fractional_max_pool3d_backward.default, 3),
)
