"""Gradients of resizing: nearest, linear, cubic and antialiased."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.backward.separable_gradient import separable_gradient
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.resize.nearest import positive_scales
from fx_importer.decompositions.resize.smooth import cubic, filtered, step_of, triangle
from fx_importer.fx_graph.operators import aten


def _nearest(operator: OpOverload, forward: Callable[..., Tensor], doubled: Sequence[int] = ()) -> Decomposition:
    """Return the rule for ``forward``, which resizes the last axis of rows to a size, by a scale if given.

    Eager ignores the scale of an axis whose size is multiplied by one of ``doubled``: `nearest_idx` of UpSample.h.
    """

    @decomposes(operator)
    def nearest_backward(grad: Tensor, outputs: Sequence[int], sizes: Sequence[int], *scales: float | None) -> Any:
        factors = positive_scales(scales, len(outputs))

        def along(rows: Tensor, k: int) -> Tensor:
            read = outputs[k] not in [times * rows.shape[-1] for times in doubled]
            return forward(rows, [outputs[k]], factors[k] if read else None)

        return separable_gradient(grad, sizes[2:], along)

    return nearest_backward


Mixed = Callable[[int, int, Any, bool, torch.dtype], Tensor]
"""Where an infinite gradient becomes NaN: a function of sizes and step of an axis, ``align_corners`` and dtype."""


def _interpolating(
    operator: OpOverload,
    forward: Callable[[Tensor, int, bool, float | None], Tensor],
    mixed: Mixed,
    copies: bool = False,
) -> Decomposition:
    """Return the rule for ``forward``, which resizes the last axis of rows to a size, by a scale if given.

    Args:
        operator: the gradient.
        forward: the operator along an axis.
        mixed: the factors by which eager multiplies infinite gradients.
        copies: whether eager copies the gradient where no size changes.
    """

    @decomposes(operator)
    def resizing_backward(
        grad: Tensor, outputs: Sequence[int], sizes: Sequence[int], aligned: bool, *scales: float | None
    ) -> Any:
        factors = positive_scales(scales, len(outputs))
        dtype = torch.promote_types(grad.dtype, torch.float32)
        resized = [~_equal(size, output, dtype) for size, output in zip(sizes[2:], outputs, strict=True)]

        def mixed_along(k: int) -> Tensor:
            step = step_of(sizes[k + 2], outputs[k], aligned, factors[k], dtype)
            result = mixed(sizes[k + 2], outputs[k], step, aligned, dtype)
            return (result & functools.reduce(torch.logical_or, resized) if copies else result).transpose(0, 1)

        def along(rows: Tensor, k: int) -> Tensor:
            return forward(rows, outputs[k], aligned, factors[k])

        return separable_gradient(grad, sizes[2:], along, mixed_along)

    return resizing_backward


def _equal(size: int, other: int, dtype: torch.dtype) -> Tensor:
    return torch.scalar_tensor(size, dtype=dtype) == torch.scalar_tensor(other, dtype=dtype)


def _linear_mixed(size: int, outputs: int, step: Any, aligned: bool, dtype: torch.dtype) -> Tensor:
    """Return the elements that eager reads with a weight of 0: the second of two neighbors, or the last one again."""
    index = torch.arange(outputs, dtype=dtype)
    index = torch.clamp(index * step if aligned else (index + 0.5) * step - 0.5, min=0).unsqueeze(-1)
    last = torch.scalar_tensor(size - 1, dtype=dtype)
    first = torch.minimum(torch.floor(index), last)
    same = _equal(size, outputs, dtype)
    second = torch.where(same, first, torch.minimum(first + 1, last))  # eager does not interpolate between same sizes
    return (torch.arange(size, dtype=dtype) == second) & (same | (index == first))


def _cubic_mixed(size: int, outputs: int, step: Any, aligned: bool, dtype: torch.dtype) -> Tensor:
    """Return the elements that eager reads with a weight of 0, or at the border with weights of both signs."""
    index = torch.arange(outputs, dtype=dtype)
    index = (index * step if aligned else (index + 0.5) * step - 0.5).unsqueeze(-1)
    last = torch.scalar_tensor(size - 1, dtype=dtype)
    first = torch.minimum(torch.floor(index), last)
    elements = torch.arange(size, dtype=dtype)
    before, at, after, behind = (
        elements == torch.minimum(torch.clamp(first + offset, min=0), last) for offset in (-1, 0, 1, 2)
    )
    return ((before | behind) & (at | after)) | ((index == first) & (before | after | behind))


def _antialiased_mixed(filter: Callable[[Tensor], Tensor], reach: int) -> Mixed:
    """Return a function that tells which elements of the windows of ``filter`` have a weight of 0."""

    def mixed(size: int, outputs: int, step: Any, _aligned: bool, dtype: torch.dtype) -> Tensor:
        weights, window = filtered(size, outputs, step, filter, reach, dtype)
        return window & (weights == 0)

    return mixed


def _linear(rows: Tensor, size: int, aligned: bool, scale: float | None) -> Tensor:
    return aten.upsample_linear1d(rows, [size], aligned, scale)


def _of_images(forward: Callable[..., Tensor]) -> Callable[[Tensor, int, bool, float | None], Tensor]:
    """Return ``forward``, a 2-D resize, as a function of rows."""
    return lambda rows, size, aligned, scale: forward(rows.unsqueeze(1), [1, size], aligned, None, scale).squeeze(1)


_NEAREST = (aten.upsample_nearest1d_backward, aten.upsample_nearest2d_backward, aten.upsample_nearest3d_backward)
_NEAREST_EXACT = (
    *(aten._upsample_nearest_exact1d_backward, aten._upsample_nearest_exact2d_backward),
    aten._upsample_nearest_exact3d_backward,
)

RESIZE_BACKWARD = (
    *(_nearest(packet.default, aten.upsample_nearest1d.default, (1, 2)) for packet in _NEAREST),
    *(_nearest(packet.default, aten._upsample_nearest_exact1d.default) for packet in _NEAREST_EXACT),
    _interpolating(aten.upsample_linear1d_backward.default, _linear, _linear_mixed),
    _interpolating(aten.upsample_bilinear2d_backward.default, _linear, _linear_mixed),
    _interpolating(aten.upsample_trilinear3d_backward.default, _linear, _linear_mixed),
    _interpolating(
        aten.upsample_bicubic2d_backward.default, _of_images(aten.upsample_bicubic2d), _cubic_mixed, copies=True
    ),
    _interpolating(
        aten._upsample_bilinear2d_aa_backward.default,
        _of_images(aten._upsample_bilinear2d_aa),
        _antialiased_mixed(triangle, 1),
    ),
    _interpolating(
        aten._upsample_bicubic2d_aa_backward.default,
        _of_images(aten._upsample_bicubic2d_aa),
        _antialiased_mixed(cubic, 2),
    ),
)
