"""Rescales, convolutions and windows of integer tensors in TOSA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import with_element


def static_shape(emit: TargetEmitter, x: ir.Value | ir.Type, first: int = 0) -> list[int]:
    """Return the sizes from the axis ``first`` on, which are static: rules refuse others."""
    sizes = emit.shape(x)[first:]
    static = [size for size in sizes if size is not None]
    assert len(static) == len(sizes), sizes
    return static


def to_nhwc(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the transpose to channels last."""
    return emit.transpose(x, (0, 2, 3, 1))


def to_nchw(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the transpose to channels first."""
    return emit.transpose(x, (0, 3, 1, 2))


def emit_scalar(emit: TosaEmitter, value: int, element: str) -> ir.Value:
    """Emit a constant of one element, such as a zero point."""
    return emit.tosa.const(emit.attribute(f"dense<{value}> : tensor<1x{element}>"))


def accumulator_type(emit: TosaEmitter, x: ir.Value) -> str:
    """Return the element type of sums of products of ``x``."""
    return "i48" if emit.element(x) == "i16" else "i32"


def emit_exact_windows(
    emit: TosaEmitter, x: ir.Value, extents: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[ir.Value, list[int]]:
    """Return ``x[N, H, W, C]`` and ``padding`` without the last rows and columns that no window reads.

    ``extents`` are the sizes of a window: TOSA requires that the windows divide the axis.
    """
    sizes, pad = list(emit.shape(x)), list(padding)
    for axis, (extent, step) in enumerate(zip(extents, stride, strict=True)):
        before, after = pad[2 * axis : 2 * axis + 2]
        size = static_shape(emit, x, axis + 1)[0]
        unread = (size + before + after - extent) % step
        pad[2 * axis + 1] -= min(after, unread)
        sizes[axis + 1] = size - unread + min(after, unread)
    if tuple(sizes) != emit.shape(x):
        x = emit.slice(x, [0] * 4, sizes)
    return x, pad


def emit_convolution(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    zero_point: int,
) -> ir.Value:
    """Emit the sums of a convolution of ``x[N, H, W, C]`` with ``weight[O, C / groups, h, w]``, in i32 or i48."""
    sums = accumulator_type(emit, x)
    channels, depth, *kernel = static_shape(emit, weight)
    extents = [by * (size - 1) + 1 for by, size in zip(dilation, kernel, strict=True)]
    x, pad = emit_exact_windows(emit, x, extents, stride, padding)
    batch, (*sizes, of_x) = emit.shape(x)[0], static_shape(emit, x, 1)
    counts = [
        (size + sum(pad[2 * axis : 2 * axis + 2]) - extents[axis]) // stride[axis] + 1
        for axis, size in enumerate(sizes)
    ]
    zeros = [emit_scalar(emit, zero_point, emit.element(x)), emit.constant_i8(0)]
    attributes = {
        "pad": emit.array(pad),
        "stride": emit.array(stride),
        "dilation": emit.array(dilation),
        "acc_type": emit.attribute(sums),
    }

    def emitted(name: str, x: ir.Value, weight: ir.Value, bias: ir.Value) -> ir.Value:
        kind = emit.tensor([batch, *counts, *emit.shape(bias)], sums)
        return emit.op(name, [kind], [x, weight, bias, *zeros], attributes).result

    if depth == 1 and groups == of_x and groups > 1:
        by_channel = emit.reshape(emit.transpose(weight, (2, 3, 0, 1)), [*kernel, of_x, channels // of_x])
        return emitted("tosa.depthwise_conv2d", x, by_channel, bias)
    weight = emit.transpose(weight, (0, 2, 3, 1))
    if groups == 1:
        return emitted("tosa.conv2d", x, weight, bias)
    per_group = channels // groups
    parts: list[ir.Value] = []
    for group in range(groups):
        part = emit.slice(x, [0, 0, 0, group * depth], [batch, *sizes, depth])
        filters = emit.slice(weight, [group * per_group, 0, 0, 0], [per_group, *kernel, depth])
        parts.append(emitted("tosa.conv2d", part, filters, emit.slice(bias, [group * per_group], [per_group])))
    return emit.concat(parts, 3)


def emit_requantized(
    emit: TosaEmitter,
    sums: ir.Value,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    out_zero_point: int,
    low: int,
    high: int,
    bits: int = 8,
    *,
    zero_point: int = 0,
) -> ir.Value:
    """Emit the rescale of ``sums`` to i8 or i16, by one scale or one for each element of the last axis, and a clamp.

    With ``bits`` of 32, these are ``sums`` as they are.
    """
    if bits == 32:
        return sums
    narrow = emit_rescale(emit, sums, f"i{bits}", multipliers, shifts, zero_point, out_zero_point)
    return emit_clamp(emit, narrow, low, high)


def emit_rescale(
    emit: TosaEmitter,
    x: ir.Value,
    element: str,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    zero_point: int,
    out_zero_point: int,
    unsigned: str = "",
) -> ir.Value:
    """Emit a rescale to ``element``, by one scale or by one for each element of the last axis.

    ``unsigned`` names the attribute that says that the operand or the result is; their zero point is in bits of i8.
    """
    wide = emit.element(x) == "i48"  # its multipliers have 15 bits
    constants = [
        emit.tosa.const_array(np.array(multipliers, np.int16 if wide else np.int32)),
        emit.tosa.const_array(np.array(shifts, np.int8)),
        emit_scalar(emit, zero_point, emit.element(x)),
        emit_scalar(emit, out_zero_point, element),
    ]
    no, yes = emit.attribute("false"), emit.attribute("true")
    attributes = {
        "scale32": no if wide else yes,
        "rounding_mode": emit.attribute("#tosa.rounding_mode<SINGLE_ROUND>"),
        "per_channel": yes if len(multipliers) > 1 else no,
        "input_unsigned": no,
        "output_unsigned": no,
    } | ({unsigned: yes} if unsigned else {})
    return emit.op("tosa.rescale", [with_element(x.type, element)], [x, *constants], attributes).result


def emit_clamp(emit: TosaEmitter, x: ir.Value, low: int, high: int) -> ir.Value:
    element = emit.element(x)
    half = 2 ** (int(element[1:]) - 1)
    if (low, high) == (-half, half - 1):
        return x
    bounds = {"min_val": emit.attribute(f"{low} : {element}"), "max_val": emit.attribute(f"{high} : {element}")}
    return emit.op("tosa.clamp", [x.type], [x], bounds).result


def emit_i48_bias(emit: TosaEmitter, bias: Sequence[int]) -> ir.Value:
    """Emit a bias of i48 accumulators."""
    return emit.tosa.const(emit.attribute(f"dense<{list(bias)}> : tensor<{len(bias)}xi48>"))
