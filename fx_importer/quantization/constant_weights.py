"""Constant weights of convolutions and matmuls: integers, biases and scales."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.quantization.qdq import QuantizedWeight, weight_of
from fx_importer.quantization.rule import Scope
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift


def constant_weight(scope: Scope, node: fx.Node) -> QuantizedWeight:
    """Return the quantized constant that a weight is dequantized from. Raises `NoIntegerForm`."""
    weight = weight_of(node, scope.constants.value)
    if weight is None:
        raise NoIntegerForm(f"its weight {node.name} is not a dequantized constant of known values")
    return weight


def weight_and_scales(
    scope: Scope, weight: QuantizedWeight, bias: Any, of_x: Params, params: Params
) -> tuple[Any, ...]:
    """Return the integers of a weight, of a bias, and of its offset, with multipliers and shifts, one or by channel.

    For int16 activations the bias is a list, without an offset. Results of 32 bits are sums without a bias.
    """
    if weight.values.dtype is not torch.int8:
        raise NoIntegerForm(f"its weights are {weight.values.dtype}, and not torch.int8")
    if int(weight.zero_points.abs().max()):
        worst = int(weight.zero_points[weight.zero_points.abs().argmax()])
        raise NoIntegerForm(f"its weights are asymmetric (a zero point is {worst}): quantize them symmetrically")
    if weight.axis not in (None, 0):
        raise NoIntegerForm(f"its weights have scales along axis {weight.axis}, and not along their output channels")
    channels = weight.values.shape[0]
    products = of_x.scale * weight.scales
    unscaled = params.bits == 32
    sums = _bias(scope, None if unscaled else bias, channels, products)
    # The largest magnitude in the accumulator of a channel.
    bounds = weight.values.double().abs().flatten(1).sum(1) * of_x.reach + sums.abs()
    wide = of_x.bits == 16
    if float(bounds.max()) >= 2 ** (47 if wide else 31):
        raise NoIntegerForm(f"its sums can exceed {48 if wide else 32} bits")
    ratios = [1.0] if unscaled else (products / params.scale).tolist()
    limits = bounds.tolist() if len(ratios) == channels else [float(bounds.max())]
    pairs = [multiplier_and_shift(*pair, wide) for pair in zip(ratios, limits, strict=True)]
    multipliers, shifts = zip(*pairs, strict=True)
    if weight.source is not None and weight.source.op == "placeholder":
        source = scope.constants.shared(weight.source, weight.values)
    else:
        source = scope.constants.add(weight.values)
    if wide:
        return source, sums.long().tolist(), (list(multipliers), list(shifts))
    offset = sums - of_x.zero_point * weight.values.double().flatten(1).sum(1)
    constants = [scope.constants.add(tensor.long().to(torch.int32)) for tensor in (sums, offset)]
    return source, constants[0], constants[1], (list(multipliers), list(shifts))


def _bias(scope: Scope, bias: Any, channels: int, scales: Tensor) -> Tensor:
    if bias is None:
        return torch.zeros(channels, dtype=torch.float64)
    values = scope.constants.value(bias)
    if values is None or values.shape != (channels,):
        raise NoIntegerForm("its bias is not a constant of known values")
    return (values.double() / scales).round()
