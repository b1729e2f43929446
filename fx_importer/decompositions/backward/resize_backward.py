"""Gradients of operators that are linear and work on each axis by itself: average pools, resizing, padding.

Along one axis such an operator is a matrix, and its gradient a product with the transpose. The matrix is what the
operator makes of the unit matrix. Zero times infinity is not a number: a gradient that is infinite reaches its whole
row and column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.indexing.interior_padding import of_axes
from fx_importer.fx_graph.operators import aten

Along = Callable[[Tensor, int], Tensor]
"""Applies an operator to the last axis of [rows, 1, size], the axis being the k-th of those that it works on."""


def _pulled_back(grad: Tensor, sizes: Sequence[int], along: Along) -> Any:
    """Return the gradient of the argument, whose last axes have ``sizes``, from that of the result."""
    if not is_static(grad) or not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    for k, size in enumerate(sizes):
        axis = grad.dim() - len(sizes) + k
        places = torch.arange(size)
        unit = (places.unsqueeze(-1) == places).to(grad.dtype)
        matrix = along(unit.unsqueeze(1), k).squeeze(1)  # [size, outputs]
        grad = (grad.movedim(axis, -1) @ matrix.transpose(0, 1)).movedim(-1, axis)
    return grad


def _averages(operator: OpOverload, axes: int) -> Decomposition:
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
        """The number of elements in a window is the product of those along each axis."""
        kernel, padding = of_axes(kernel, axes), of_axes(padding, axes)
        stride = of_axes(stride, axes) if len(stride) else kernel

        def along(rows: Tensor, k: int) -> Tensor:
            window = ([1, kernel[k]], [1, stride[k]], [0, padding[k]])
            return aten.avg_pool2d(rows.unsqueeze(1), *window, ceil, count_padding, 1 if divisor else None).squeeze(1)

        found = _pulled_back(grad, x.shape[-axes:], along)
        return found / divisor if divisor and found is not NotImplemented else found

    return averages_backward


def _adaptive(operator: OpOverload, axes: int) -> Decomposition:
    @decomposes(operator)
    def adaptive_backward(grad: Tensor, x: Tensor) -> Any:
        sizes = grad.shape[-axes:]
        return _pulled_back(grad, x.shape[-axes:], lambda rows, k: aten.adaptive_avg_pool1d(rows, [sizes[k]]))

    return adaptive_backward


def _padding(operator: OpOverload, forward: Callable[..., Tensor], axes: int) -> Decomposition:
    @decomposes(operator)
    def padding_backward(grad: Tensor, x: Tensor, widths: Sequence[int]) -> Any:
        pairs = [list(widths[2 * k : 2 * k + 2]) for k in reversed(range(axes))]  # they begin with the last axis
        return _pulled_back(grad, x.shape[-axes:], lambda rows, k: forward(rows, pairs[k]))

    return padding_backward


def _nearest(operator: OpOverload, forward: Callable[..., Tensor]) -> Decomposition:
    @decomposes(operator)
    def nearest_backward(grad: Tensor, outputs: Sequence[int], sizes: Sequence[int], *scales: float | None) -> Any:
        given = [*scales, *[None] * len(outputs)]

        def along(rows: Tensor, k: int) -> Tensor:
            scale = given[k]
            return forward(rows, [outputs[k]], None) if scale is None else forward(rows, None, [scale])

        return _pulled_back(grad, sizes[2:], along)

    return nearest_backward


def _resizing(operator: OpOverload, forward: Callable[[Tensor, int, bool, float | None], Tensor]) -> Decomposition:
    """``forward`` resizes the last axis of rows to a size, by a scale if there is one."""

    @decomposes(operator)
    def resizing_backward(
        grad: Tensor, outputs: Sequence[int], sizes: Sequence[int], aligned: bool, *scales: float | None
    ) -> Any:
        given = [*scales, *[None] * len(outputs)]
        return _pulled_back(grad, sizes[2:], lambda rows, k: forward(rows, outputs[k], aligned, given[k]))

    return resizing_backward


def _linear(rows: Tensor, size: int, aligned: bool, scale: float | None) -> Tensor:
    return aten.upsample_linear1d(rows, [size], aligned, scale)


def _of_images(forward: Callable[..., Tensor]) -> Callable[[Tensor, int, bool, float | None], Tensor]:
    """Return what does with rows what ``forward``, which has no form of one axis, does with images of one row."""
    return lambda rows, size, aligned, scale: forward(rows.unsqueeze(1), [1, size], aligned, None, scale).squeeze(1)


_REFLECTION = (aten.reflection_pad1d_backward, aten.reflection_pad2d_backward, aten.reflection_pad3d_backward)
_REPLICATION = (aten.replication_pad1d_backward, aten.replication_pad2d_backward, aten.replication_pad3d_backward)
_NEAREST = (aten.upsample_nearest1d_backward, aten.upsample_nearest2d_backward, aten.upsample_nearest3d_backward)
_NEAREST_EXACT = (
    *(aten._upsample_nearest_exact1d_backward, aten._upsample_nearest_exact2d_backward),
    aten._upsample_nearest_exact3d_backward,
)

SEPARABLE = (
    _averages(aten.avg_pool2d_backward.default, 2),
    _averages(aten.avg_pool3d_backward.default, 3),
    _adaptive(aten._adaptive_avg_pool2d_backward.default, 2),
    _adaptive(aten._adaptive_avg_pool3d_backward.default, 3),
    *(_padding(each.default, aten.reflection_pad1d, axes) for axes, each in enumerate(_REFLECTION, 1)),
    *(_padding(each.default, aten.replication_pad1d, axes) for axes, each in enumerate(_REPLICATION, 1)),
    *(_nearest(each.default, aten.upsample_nearest1d.vec) for each in _NEAREST),
    *(_nearest(each.default, aten._upsample_nearest_exact1d.vec) for each in _NEAREST_EXACT),
    _resizing(aten.upsample_linear1d_backward.default, _linear),
    _resizing(aten.upsample_bilinear2d_backward.default, _linear),
    _resizing(aten.upsample_trilinear3d_backward.default, _linear),
    _resizing(aten.upsample_bicubic2d_backward.default, _of_images(aten.upsample_bicubic2d)),
    _resizing(aten._upsample_bilinear2d_aa_backward.default, _of_images(aten._upsample_bilinear2d_aa)),
    _resizing(aten._upsample_bicubic2d_aa_backward.default, _of_images(aten._upsample_bicubic2d_aa)),
)
