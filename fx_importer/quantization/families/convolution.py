"""Convolutions over one and two axes, of int8 and int16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.linalg import LinalgEmitter
from fx_importer.lowerings.stablehlo import StablehloEmitter
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.constant_weights import constant_weight, weight_and_scales
from fx_importer.quantization.integer_operators import PER_CHANNEL, defines, integer, pad_image, requantized_by_channel
from fx_importer.quantization.rule import BATCH, Family, FloatSums, Rule, Scope, arguments, never, shape_of
from fx_importer.quantization.scales import SUMS, NoIntegerForm, Params, out_of
from fx_importer.quantization.sums_emission import emit_integer_matmul
from fx_importer.quantization.tosa_emission import (
    emit_convolution,
    emit_i48_bias,
    emit_requantized,
    static_shape,
    to_nchw,
    to_nhwc,
)
from fx_importer.quantization.windows import four_sides, pair, same_padding


def _fold_convolution(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    if passed.get("transposed") or len(shape_of(node, BATCH)) != 4:
        raise NoIntegerForm("it is not a convolution over a batch and two axes")
    return _fold_windows(scope, node, passed, params)


def _fold_convolution_of_one_axis(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    """Emit a convolution over ``[N, C, L]`` as one over ``[N, C, 1, L]``."""
    passed = arguments(node)
    if len(shape_of(node, BATCH)) != 3:
        raise NoIntegerForm("it is not a convolution over a batch and one axis")

    def wide(values: Any) -> list[int]:
        return [1, *values] if isinstance(values, list | tuple) else [1, values]

    padding = passed["padding"]
    passed["padding"] = padding if isinstance(padding, str) else [0, *wide(padding)[1:]]
    passed |= {name: wide(passed[name]) for name in ("stride", "dilation")}
    return _fold_windows(scope, node, passed, params, added=True)


def _fold_windows(
    scope: Scope, node: fx.Node, passed: dict[str, Any], params: Params, *, added: bool = False
) -> fx.Node:
    """Emit a convolution of arguments ``passed`` over two axes; with ``added``, the first is added, of size one."""
    x, of_x = scope.quantized(passed["input"])
    weight, *biases, scales = weight_and_scales(
        scope, constant_weight(scope, passed["weight"]), passed["bias"], of_x, params
    )
    if added:
        x, weight = (scope.call(node, aten.unsqueeze.default, operand, 2) for operand in (x, weight))
    stride, dilation = pair(passed["stride"]), pair(passed["dilation"])
    padding, shape = passed["padding"], shape_of(weight)
    sides = same_padding(padding, shape, dilation) if isinstance(padding, str) else four_sides(pair(padding))
    x, padded = _without_pad(x, of_x, sides, [by * (size - 1) for by, size in zip(dilation, shape[2:], strict=True)])
    sides = [side + by for side, by in zip(sides, padded, strict=True)]
    windows = (stride, sides, dilation, passed["groups"])
    if of_x.bits == 16:
        made = scope.call(node, integer.wide_conv2d.default, x, weight, *biases, *windows, *scales, *out_of(params))
        return scope.call(node, aten.squeeze.dim, made, 2) if added else made
    made = scope.call(
        node, integer.conv2d.default, x, weight, *biases, *windows, of_x.zero_point, *scales, *out_of(params)
    )
    return scope.call(node, aten.squeeze.dim, made, 2) if added else made


def _without_pad(x: fx.Node, of_x: Params, sides: Sequence[int], most: Sequence[int]) -> tuple[fx.Node, list[int]]:
    """Return ``x`` before zeros around its images, and these as top, bottom, left and right of a convolution.

    With ``sides`` they are at most ``most`` rows and columns: less than a window.
    """
    if x.target is aten.constant_pad_nd.default and x.args[2] == of_x.zero_point:
        source, widths, *_ = x.args
        by_side: list[int] = [*widths, 0, 0, 0, 0][:4]  # type: ignore[misc, list-item]
        padding = [*by_side[2:], *by_side[:2]]
        bounds = [number for number in most for _ in range(2)]
        fits = all(by >= 0 and by + at <= bound for by, at, bound in zip(padding, sides, bounds, strict=True))
        if fits and len(widths) <= 4:  # type: ignore[arg-type]
            return source, padding  # type: ignore[return-value]
    return x, [0, 0, 0, 0]


def _sums(scope: Scope, node: fx.Node) -> FloatSums:
    passed = arguments(node)
    _, of_x = scope.quantized(passed["input"])
    scales = of_x.scale * constant_weight(scope, passed["weight"]).scales
    return FloatSums(of_x, SUMS, scales, passed["bias"], node.meta["val"].dim() - 2)


@defines(
    "Tensor x, Tensor weight, Tensor bias, Tensor offset, int[] stride, int[] padding, int[] dilation, int groups, "
    f"int zero_point, {PER_CHANNEL}"
)
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    offset: Tensor,
    stride: list[int],
    padding: Sequence[int],
    dilation: list[int],
    groups: int,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return the convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]`` and an int32 bias."""
    padded = pad_image(x, padding, zero_point) if any(padding) else x
    sums = integer.conv2d_sums(padded, weight, stride, dilation, groups) + offset.reshape(-1, 1, 1)
    return requantized_by_channel(sums, (-1, 1, 1), multipliers, shifts, *out)


@defines("Tensor x, Tensor weight, int[] stride, int[] dilation, int groups")
def conv2d_sums(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int) -> Tensor:
    """Return the convolution of int8 tensors as int32, or of int16 as int64. Sums in float64 are exact."""
    sums = F.conv2d(x.double(), weight.double(), None, stride, 0, dilation, groups).long()
    return sums if x.dtype is torch.int16 else sums.int()


@defines(f"Tensor x, Tensor weight, int[] bias, int[] stride, int[] padding, int[] dilation, int groups, {PER_CHANNEL}")
def wide_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Sequence[int],
    stride: list[int],
    padding: Sequence[int],
    dilation: list[int],
    groups: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return the convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]``, of int8."""
    padded = pad_image(x, padding) if any(padding) else x
    offset = torch.tensor(bias, dtype=torch.int64, device=x.device).reshape(-1, 1, 1)
    sums = integer.conv2d_sums(padded, weight, stride, dilation, groups) + offset
    return requantized_by_channel(sums, (-1, 1, 1), multipliers, shifts, *out)


@lowers(integer.conv2d.default, into="tosa")
def tosa_conv2d(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    _offset: ir.Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a convolution of channels last, with its rescale."""
    sums = emit_convolution(emit, to_nhwc(emit, x), weight, bias, stride, padding, dilation, groups, zero_point)
    return to_nchw(emit, emit_requantized(emit, sums, multipliers, shifts, *out))


@lowers(integer.wide_conv2d.default, into="tosa")
def tosa_wide_conv2d(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a convolution of channels last, with its rescale; one for each group, since TOSA joins no tensors of i48."""
    image, (channels, depth, *kernel) = to_nhwc(emit, x), static_shape(emit, weight)

    def emitted(x: ir.Value, weight: ir.Value, groups: int, part: slice) -> ir.Value:
        wide_bias = emit_i48_bias(emit, bias[part])
        sums = emit_convolution(emit, x, weight, wide_bias, stride, padding, dilation, groups, 0)
        scales = (multipliers, shifts) if len(multipliers) == 1 else (multipliers[part], shifts[part])
        return emit_requantized(emit, sums, *scales, *out)

    if groups == 1 or depth == 1:
        return to_nchw(emit, emitted(image, weight, groups, slice(None)))
    batch, *sizes, _ = emit.shape(image)
    count = channels // groups
    parts: list[ir.Value] = []
    for group in range(groups):
        part = emit.slice(image, [0, 0, 0, group * depth], [batch, *sizes, depth])
        filters = emit.slice(weight, [group * count, 0, 0, 0], [count, depth, *kernel])
        parts.append(emitted(part, filters, 1, slice(group * count, (group + 1) * count)))
    return to_nchw(emit, emit.concat(parts, 3))


@lowers(integer.conv2d_sums.default, into="stablehlo")
def stablehlo_conv2d_sums(
    emit: StablehloEmitter, x: ir.Value, weight: ir.Value, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> ir.Value:
    """Emit a convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]``."""
    if groups > 1 and emit.shape(weight)[1] == 1:  # IREE 3.13 makes no depthwise convolution of i8 with a result of i32
        x, weight = emit.cast(x, "i32"), emit.cast(weight, "i32")
    if emit.element(emit.results[0]) == "i64":
        x, weight = emit.cast(x, "i64"), emit.cast(weight, "i64")
    numbers = "#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>"
    attributes = {
        "window_strides": emit.array(stride),
        "padding": emit.attribute("dense<0> : tensor<2x2xi64>"),
        "lhs_dilation": emit.array((1, 1)),
        "rhs_dilation": emit.array(dilation),
        "dimension_numbers": emit.attribute(numbers),
        "feature_group_count": emit.attribute(f"{groups} : i64"),
        "batch_group_count": emit.attribute("1 : i64"),
    }
    return emit.op("stablehlo.convolution", list(emit.results), [x, weight], attributes).result


@lowers(integer.conv2d_sums.default, into="linalg-on-tensors")
def linalg_conv2d_sums(
    emit: LinalgEmitter, x: ir.Value, weight: ir.Value, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> ir.Value:
    """Emit a convolution of ``x[N, C, H, W]`` with ``weight[O, C / groups, h, w]``."""
    (result,) = emit.results
    attributes = {
        name: emit.attribute(f"dense<{list(values)}> : tensor<2xi64>")
        for name, values in (("strides", stride), ("dilations", dilation))
    }
    channels, *sizes = static_shape(emit, x, 1)
    filters, depth, *kernel = static_shape(emit, weight)
    if groups == 1:
        return emit_integer_matmul(emit, "conv_2d_nchw_fchw", x, weight, result, attributes)
    if groups == channels == filters:
        weight = emit.reshape(weight, [filters, *kernel])
        return emit_integer_matmul(emit, "depthwise_conv_2d_nchw_chw", x, weight, result, attributes)
    x = emit.reshape(x, [-1, groups, channels // groups, *sizes])
    weight = emit.reshape(weight, [groups, filters // groups, depth, *kernel])
    places = static_shape(emit, result, 2)
    grouped = emit.tensor([emit.shape(x)[0], groups, filters // groups, *places], emit.element(result))
    sums = emit_integer_matmul(emit, "conv_2d_ngchw_gfchw", x, weight, grouped, attributes)
    return emit.reshape(sums, [-1, filters, *places])


_RULE = Rule(_fold_convolution, sums=_sums, weight_axis=0)
_ONE_AXIS = Rule(_fold_convolution_of_one_axis, sums=_sums, weight_axis=0)
FAMILY = Family(
    rules={
        aten.conv1d.default: _ONE_AXIS,
        aten.conv1d.padding: _ONE_AXIS,
        aten.conv2d.default: _RULE,
        aten.conv2d.padding: _RULE,
        aten.convolution.default: Rule(_fold_convolution, accepts=never),
    },
    operators=(conv2d, wide_conv2d, conv2d_sums),
    lowerings=(tosa_conv2d, tosa_wide_conv2d, stablehlo_conv2d_sums, linalg_conv2d_sums),
)
