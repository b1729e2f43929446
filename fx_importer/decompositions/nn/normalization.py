"""Decompositions of normalizations, computed in the input's precision, or float32 for low precision, as in eager.

Torch's own decompositions go through ``as_strided``, and through a variance that the torch dialect computes in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static, is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _to_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _normalize(x: Tensor, axes: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``(x - mean) / sqrt(variance + eps)``, mean, and ``1 / sqrt(variance + eps)``, with reduced axes kept."""
    mean = x.mean(axes, keepdim=True)
    centered = x - mean
    scale = torch.rsqrt((centered * centered).mean(axes, keepdim=True) + eps)
    return centered * scale, mean, scale


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@decomposes(aten.native_layer_norm.default)
def native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize over the trailing ``len(shape)`` axes; also return the mean and the reciprocal standard deviation."""
    result, mean, scale = _normalize(_to_float32(x), list(range(-len(shape), 0)), eps)
    return _affine(result, weight, bias).to(x.dtype), mean.to(x.dtype), scale.to(x.dtype)


@decomposes(aten.layer_norm.default)
def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Normalize over the trailing ``len(shape)`` axes."""
    return native_layer_norm(x, shape, weight, bias, eps)[0]


@decomposes(aten.rms_norm.default)
def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Return ``x / sqrt(mean(x**2) + eps) * weight`` over the last ``len(shape)`` axes."""
    wide = _to_float32(x)
    epsilon = torch.finfo(wide.dtype).eps if eps is None else eps
    mean = (wide * wide).mean(list(range(-len(shape), 0)), keepdim=True)
    return _affine(wide * torch.rsqrt(mean + epsilon), weight, None).to(x.dtype)


@decomposes(aten.native_group_norm.default)
def native_group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize over each of ``groups`` groups of channels; also return the means and the reciprocal deviations."""
    if are_static(c):
        grouped = _to_float32(x).reshape(n, groups, (c // groups) * hxw)
        result, mean, scale = _normalize(grouped, [2], eps)
        result = result.reshape(x.shape)
    else:  # torch does not prove that a product with c // groups is divisible
        grouped = _to_float32(x).unflatten(1, (groups, c // groups))
        result, mean, scale = _normalize(grouped, list(range(2, grouped.dim())), eps)
        result = result.flatten(1, 2)
    weight, bias = (
        None if tensor is None else tensor.reshape(1, -1, *[1] * (x.dim() - 2)) for tensor in (weight, bias)
    )
    mean, scale = (tensor.reshape(n, groups).to(x.dtype) for tensor in (mean, scale))
    return _affine(result, weight, bias).to(x.dtype), mean, scale


@decomposes(aten.native_group_norm.default)
def native_group_norm_of_images(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, groups: int, eps: float
) -> Any:
    """Normalize with channels last, as convolutions of TOSA have them, so that no transpose is left between both."""
    if x.dim() != 4 or not is_static(x):
        return NotImplemented
    rows = _to_float32(x).permute(0, 2, 3, 1)
    result, mean, scale = _normalize(rows.reshape(n, hxw, groups, c // groups), [1, 3], eps)
    mean, scale = (tensor.reshape(n, groups).to(x.dtype) for tensor in (mean, scale))
    return _affine(result.reshape(rows.shape), weight, bias).permute(0, 3, 1, 2).to(x.dtype), mean, scale


def _first_result(native: Decomposition) -> Decomposition:
    """Return the rule of ``group_norm`` that ``native``, of ``native_group_norm``, is."""

    @decomposes(aten.group_norm.default)
    def rule(
        x: Tensor,
        groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Any:
        n, c = x.shape[:2]
        results = native.rule(x, weight, bias, n, c, math.prod(x.shape[2:]), groups, eps)
        return results if results is NotImplemented else results[0]

    return rule


group_norm, group_norm_of_images = map(_first_result, (native_group_norm, native_group_norm_of_images))
"""Normalize over each of ``groups`` groups of channels, which are axis one."""


@decomposes(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize each channel, axis one, by given statistics, with one multiplication and one addition per element.

    The second and third results, which are for training, are empty.
    """
    scale = torch.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    shape = [1, -1] + [1] * (x.dim() - 2)
    result = x * scale.reshape(shape) + shift.reshape(shape)
    return result.to(x.dtype), x.new_empty(0), x.new_empty(0)


@decomposes(aten._batch_norm_with_update_functional.default)
def batch_norm_with_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Normalize each channel by the statistics of the batch; the last two results are the new running statistics.

    The fourth result, reserve space for the gradient on some devices, is empty.
    """
    result, batch_mean, inverse, mean, variance = aten._native_batch_norm_legit_functional.default(
        x, weight, bias, mean, variance, True, momentum, eps
    )
    return result, batch_mean, inverse, x.new_zeros(0, dtype=torch.uint8), mean, variance
