"""Transposed convolutions of int8 and int16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.constant_weights import constant_weight, weight_and_scales
from fx_importer.quantization.integer_operators import PER_CHANNEL, defines, integer, pad_image, requantized_by_channel
from fx_importer.quantization.qdq import QuantizedWeight
from fx_importer.quantization.rule import BATCH, Family, Rule, Scope, arguments, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, out_of
from fx_importer.quantization.tosa_emission import (
    accumulator_type,
    emit_i48_bias,
    emit_requantized,
    emit_scalar,
    to_nchw,
    to_nhwc,
)
from fx_importer.quantization.windows import pair


def _fold_transposed_convolution(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    if len(shape_of(node, BATCH)) != 4:
        raise NoIntegerForm("it is not a convolution over a batch and two axes")
    stride, padding, extra, dilation = (
        pair(passed[name]) for name in ("stride", "padding", "output_padding", "dilation")
    )
    weight = _filters(constant_weight(scope, passed["weight"]), passed["groups"], dilation)
    x, of_x = scope.quantized(passed["input"])
    kernel = weight.values.shape[2:]
    sides = [side for before, after in zip(padding, extra, strict=True) for side in (-before, after - before)]
    if any(side <= -kernel[index // 2] for index, side in enumerate(sides)):
        raise NoIntegerForm(f"its padding {padding} is not less than its kernel {list(kernel)}")
    if passed["groups"] == 1:
        source, *biases, scales = weight_and_scales(scope, weight, passed["bias"], of_x, params)
        windows = (*biases, stride, sides)
        if of_x.bits == 16:
            wide = integer.wide_conv_transpose2d.default
            return scope.call(node, wide, x, source, *windows, *scales, *out_of(params))
        rest = (*windows, of_x.zero_point, *scales, *out_of(params))
        return scope.call(node, integer.conv_transpose2d.default, x, source, *rest)
    return _by_groups(scope, node, passed, x, of_x, weight, (stride, sides), params)


def _by_groups(
    scope: Scope,
    node: fx.Node,
    passed: dict[str, Any],
    x: fx.Node,
    of_x: Params,
    weight: QuantizedWeight,
    windows: tuple[list[int], list[int]],
    params: Params,
) -> fx.Node:
    """Emit a transposed convolution in groups as a convolution of elements that zeros lie between."""
    (stride, sides), kernel = windows, weight.values.shape[2:]
    channels, *sizes = shape_of(x, BATCH)[1:]
    for axis, step in zip((2, 3), stride, strict=True):
        if step > 1:
            x = scope.call(node, aten.unsqueeze.default, x, axis + 1)
            ends = [0] * (2 * (3 - axis)) + [0, step - 1]
            x = scope.call(node, aten.constant_pad_nd.default, x, ends, of_x.zero_point)
            sizes[axis - 2] = sizes[axis - 2] * step
            x = scope.call(node, aten.reshape.default, x, [-1, channels, *sizes])
            sizes[axis - 2] -= step - 1
            x = scope.call(node, aten.slice.Tensor, x, axis, 0, sizes[axis - 2])
    sides = [kernel[index // 2] - 1 + side for index, side in enumerate(sides)]
    flipped = weight.values.flip((2, 3)).contiguous()
    turned = QuantizedWeight(flipped, scope.constants.add(flipped), weight.scales, weight.zero_points, weight.axis)
    source, *biases, scales = weight_and_scales(scope, turned, passed["bias"], of_x, params)
    geometry = (*biases, [1, 1], sides, [1, 1], passed["groups"])
    if of_x.bits == 16:
        return scope.call(node, integer.wide_conv2d.default, x, source, *geometry, *scales, *out_of(params))
    rest = (*geometry, of_x.zero_point, *scales, *out_of(params))
    return scope.call(node, integer.conv2d.default, x, source, *rest)


def _filters(weight: QuantizedWeight, groups: int, dilation: list[int]) -> QuantizedWeight:
    """Return a weight ``[C, O / groups, h, w]`` as ``[O, C / groups, h, w]``, with zeros for the dilation."""
    values = weight.values.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    *outer, high, wide = values.shape
    sizes = [by * (size - 1) + 1 for by, size in zip(dilation, (high, wide), strict=True)]
    spread = values.new_zeros([*outer, *sizes])
    spread[..., :: dilation[0], :: dilation[1]] = values
    if weight.axis not in (None, 1):
        raise NoIntegerForm(f"its weights have scales along axis {weight.axis}, and not along their output channels")
    repeats = 1 if weight.axis is None else groups
    scales, zeros = weight.scales.repeat(repeats), weight.zero_points.repeat(repeats)
    return QuantizedWeight(spread, None, scales, zeros, None if weight.axis is None else 0)


@defines(
    f"Tensor x, Tensor weight, Tensor bias, Tensor offset, int[] stride, int[] padding, int zero_point, {PER_CHANNEL}"
)
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    offset: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return the transposed convolution of ``x[N, C, H, W]`` with ``weight[O, C, h, w]``, with ``padding`` added."""
    sums = _sums(x, weight, stride, padding, zero_point) + offset.reshape(-1, 1, 1)
    return requantized_by_channel(sums, (-1, 1, 1), multipliers, shifts, *out)


@defines(f"Tensor x, Tensor weight, int[] bias, int[] stride, int[] padding, {PER_CHANNEL}")
def wide_conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return the transposed convolution of int16 ``x[N, C, H, W]`` with ``weight[O, C, h, w]``, of int8."""
    offset = torch.tensor(bias, dtype=torch.int64, device=x.device).reshape(-1, 1, 1)
    return requantized_by_channel(_sums(x, weight, stride, padding, 0) + offset, (-1, 1, 1), multipliers, shifts, *out)


def _sums(x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], zero_point: int) -> Tensor:
    spread = _intersperse(x, stride, zero_point)
    sides = [size - 1 for size in weight.shape[2:] for _ in (0, 1)]
    sides = [side + added for side, added in zip(sides, padding, strict=True)]
    spread = pad_image(spread, sides, zero_point) if any(sides) else spread
    return integer.conv2d_sums(spread, weight.flip((2, 3)), [1, 1], [1, 1], 1)


def _intersperse(x: Tensor, stride: Sequence[int], value: int) -> Tensor:
    """Return ``x[N, C, H, W]`` with ``stride - 1`` elements of ``value`` between neighbours."""
    for axis, step in zip((2, 3), stride, strict=True):
        if step > 1:
            size = (x.shape[axis] - 1) * step + 1
            wide = torch.nn.functional.pad(x.unsqueeze(axis + 1), [0] * (2 * (3 - axis)) + [0, step - 1], value=value)
            x = wide.flatten(axis, axis + 1).narrow(axis, 0, size)
    return x


@lowers(integer.conv_transpose2d.default, into="tosa")
def tosa_conv_transpose2d(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    _offset: ir.Value,
    stride: Sequence[int],
    padding: Sequence[int],
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a transposed convolution of channels last, with its rescale."""
    sums = _emit_sums(emit, x, weight, bias, stride, padding, zero_point)
    return to_nchw(emit, emit_requantized(emit, sums, multipliers, shifts, *out))


@lowers(integer.wide_conv_transpose2d.default, into="tosa")
def tosa_wide_conv_transpose2d(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a transposed convolution of channels last, with its rescale."""
    sums = _emit_sums(emit, x, weight, emit_i48_bias(emit, bias), stride, padding, 0)
    return to_nchw(emit, emit_requantized(emit, sums, multipliers, shifts, *out))


def _emit_sums(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    stride: Sequence[int],
    padding: Sequence[int],
    zero_point: int,
) -> ir.Value:
    """Emit the sums of a transposed convolution of channels last, in i32 or i48."""
    filters, element = emit.transpose(weight, (0, 2, 3, 1)), accumulator_type(emit, x)
    zeros = [emit_scalar(emit, zero_point, emit.element(x)), emit.constant_i8(0)]
    attributes = {
        "out_pad": emit.array(padding),
        "stride": emit.array(stride),
        "acc_type": emit.attribute(element),
    }
    batch, channels, *sizes = emit.shape(emit.results[0])
    kind = emit.tensor([batch, *sizes, channels], element)
    return emit.op("tosa.transpose_conv2d", [kind], [to_nhwc(emit, x), filters, bias, *zeros], attributes).result


FAMILY = Family(
    rules={aten.conv_transpose2d.input: Rule(_fold_transposed_convolution, weight_axis=1)},
    operators=(conv_transpose2d, wide_conv_transpose2d),
    lowerings=(tosa_conv_transpose2d, tosa_wide_conv_transpose2d),
)
