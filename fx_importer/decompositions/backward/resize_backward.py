"""Gradients of resizing: nearest, linear, cubic and antialiased."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.backward.separable_gradient import separable_gradient
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.resize.nearest import positive_scales
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


def _interpolating(operator: OpOverload, forward: Callable[[Tensor, int, bool, float | None], Tensor]) -> Decomposition:
    """Return the rule for ``forward``, which resizes the last axis of rows to a size, by a scale if given."""

    @decomposes(operator)
    def resizing_backward(
        grad: Tensor, outputs: Sequence[int], sizes: Sequence[int], aligned: bool, *scales: float | None
    ) -> Any:
        factors = positive_scales(scales, len(outputs))
        return separable_gradient(grad, sizes[2:], lambda rows, k: forward(rows, outputs[k], aligned, factors[k]))

    return resizing_backward


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
    _interpolating(aten.upsample_linear1d_backward.default, _linear),
    _interpolating(aten.upsample_bilinear2d_backward.default, _linear),
    _interpolating(aten.upsample_trilinear3d_backward.default, _linear),
    _interpolating(aten.upsample_bicubic2d_backward.default, _of_images(aten.upsample_bicubic2d)),
    _interpolating(aten._upsample_bilinear2d_aa_backward.default, _of_images(aten._upsample_bilinear2d_aa)),
    _interpolating(aten._upsample_bicubic2d_aa_backward.default, _of_images(aten._upsample_bicubic2d_aa)),
)
