"""Gradients of average pools, adaptive ones too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.backward.separable_gradient import separable_gradient
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.interior_padding import per_axis
from fx_importer.fx_graph.operators import aten


def _avg_pool(operator: OpOverload, axes: int) -> Decomposition:
    @decomposes(operator)
    def averages_backward(
        grad: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil: bool,
        count_padding: bool,
        divisor: int | None,
    ) -> Any:
        """Return the gradient; the size of a window is the product of its sizes along each axis."""
        kernel, padding = per_axis(kernel, axes), per_axis(padding, axes)
        stride = per_axis(stride, axes) if len(stride) else kernel

        def along(rows: Tensor, k: int) -> Tensor:
            window = ([1, kernel[k]], [1, stride[k]], [0, padding[k]])
            return aten.avg_pool2d(rows.unsqueeze(1), *window, ceil, count_padding, 1 if divisor else None).squeeze(1)

        result = separable_gradient(grad, x.shape[-axes:], along)
        return result / divisor if divisor else result

    return averages_backward


def _adaptive_avg_pool(operator: OpOverload, axes: int) -> Decomposition:
    @decomposes(operator)
    def adaptive_backward(grad: Tensor, x: Tensor) -> Any:
        sizes = grad.shape[-axes:]
        return separable_gradient(grad, x.shape[-axes:], lambda rows, k: aten.adaptive_avg_pool1d(rows, [sizes[k]]))

    return adaptive_backward


AVG_POOL_BACKWARD = (
    _avg_pool(aten.avg_pool2d_backward.default, 2),
    _avg_pool(aten.avg_pool3d_backward.default, 3),
    _adaptive_avg_pool(aten._adaptive_avg_pool2d_backward.default, 2),
    _adaptive_avg_pool(aten._adaptive_avg_pool3d_backward.default, 3),
)
