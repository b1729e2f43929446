"""Decompositions of quantization operators to arithmetic, bit-exact with torch's reference.

The operators ``quantized_decomposed.*`` are registered by the import of ``torch.ao.quantization.fx._decomposed``, which
is slow, so that nothing here imports it. Torch's Python definition is the rule where it does not read values. Those
that read a scale from a tensor, or check values, have rules here.

Torchao's ``quantize_affine``, ``dequantize_affine`` and ``choose_qparams_affine`` need no rule: torchao registers them
as composite operators, see `library_composites`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.table import Decomposition, decomposes

_LIBRARY = "torch.ao.quantization.fx._decomposed"


def quantization_rules() -> tuple[Decomposition, ...]:
    """Return the rules of the quantization operators; none if these have not been imported."""
    reference = sys.modules.get(_LIBRARY)
    if reference is None:
        return ()
    ops = torch.ops.quantized_decomposed
    as_torch_defines: Mapping[OpOverload, Any] = {
        getattr(ops, name).default: getattr(reference, name)
        for name in (
            *("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel", "dequantize_per_channel"),
            *("choose_qparams_per_token", "quantize_per_token", "dequantize_per_token"),
            *("_choose_qparams_per_token_asymmetric_impl", "choose_qparams_per_token_asymmetric"),
            "dequantize_per_channel_group",
        )
    }
    return (
        *(Decomposition((operator,), rule) for operator, rule in as_torch_defines.items()),
        decomposes(ops.convert_element_type.no_fuse)(reference.convert_element_type),
        decomposes(ops.quantize_per_tensor.tensor, ops.quantize_per_tensor.tensor2)(_quantize_by_tensors),
        decomposes(ops.dequantize_per_tensor.tensor, ops.dequantize_per_tensor.tensor2)(_dequantize_by_tensors),
        decomposes(ops.choose_qparams.tensor)(_choose_qparams_asymmetric),
        decomposes(ops.choose_qparams_symmetric.tensor)(_choose_qparams_symmetric),
        decomposes(ops.quantize_per_channel_group.default)(_quantize_groups),
        decomposes(ops.fake_quant_per_channel.default)(_fake_quantize),
    )


def _quantize_by_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, low: int | Tensor, high: int | Tensor, dtype: torch.dtype
) -> Tensor:
    """Return ``clamp(round(x / scale) + zero_point)``, by the reciprocal; scale and zero point have one element."""
    factor = (1.0 / scale.reshape([])).to(torch.float32)
    levels = torch.round(x.float() * factor) + zero_point.reshape([])
    low, high = (bound.reshape([]).float() if isinstance(bound, Tensor) else bound for bound in (low, high))
    return torch.clamp(levels, low, high).to(dtype)  # pyright: ignore[reportCallIssue, reportArgumentType]


def _dequantize_by_tensors(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    low: int | Tensor,
    high: int | Tensor,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return ``(x - zero_point) * scale``, computed in ``out_dtype``."""
    to = out_dtype or torch.float32
    return (x.to(to) - zero_point.reshape([]).to(to)) * scale.reshape([]).to(to)


def _choose_qparams_asymmetric(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the scale (float64) and zero point (int64) that map the range of ``x`` and 0 to low … high."""
    smallest, largest = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
    scale = torch.maximum((largest - smallest) / float(high - low), torch.full((), eps))
    zero_point = torch.clamp(low - torch.round(smallest / scale).to(torch.int32), low, high)
    return scale.reshape([1]).to(torch.float64), zero_point.reshape([1]).to(torch.int64)


def _choose_qparams_symmetric(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the same as `_choose_qparams_asymmetric` for a range symmetric around zero."""
    largest = torch.maximum(-x.amin().clamp(max=0.0), x.amax().clamp(min=0.0))
    scale = torch.maximum(largest / (float(high - low) / 2), torch.full((), eps))
    zero_point = torch.full([1], 128 if dtype == torch.uint8 else 0, dtype=torch.int64)
    return scale.reshape([1]).to(torch.float64), zero_point


def _quantize_groups(
    x: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype, group_size: int
) -> Tensor:
    """Quantize each ``group_size`` elements of a row with their own scale: (M, N), scales (M, N / group_size)."""
    if group_size > x.shape[-1] and scales.shape[-1] == 1:
        group_size = x.shape[-1]
    levels = x.reshape(-1, group_size).mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1)).round()
    return levels.clamp(low, high).to(dtype).reshape(x.shape)


def _fake_quantize(x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, low: int, high: int) -> Tensor:
    """Return ``x`` quantized and dequantized per channel."""
    return torch.fake_quantize_per_channel_affine(x, scales.float(), zero_points.int(), axis, low, high)
