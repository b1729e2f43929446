"""Convolutions of i8 in TOSA, and windows that fit as TOSA requires."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir


def nhwc(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the transpose to channels last."""
    return emit.transpose(x, (0, 2, 3, 1))


def nchw(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the transpose to channels first."""
    return emit.transpose(x, (0, 3, 1, 2))


def constant(emit: TosaEmitter, value: int, element: str) -> ir.Value:
    """Emit a constant of one element, such as a zero point."""
    return emit.tosa.const(emit.attribute(f"dense<{value}> : tensor<1x{element}>"))


def accumulator(emit: TosaEmitter, x: ir.Value) -> str:
    """Return the element type of sums of products of ``x``."""
    return "i48" if emit.element(x) == "i16" else "i32"


def exact(
    emit: TosaEmitter, x: ir.Value, extents: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[ir.Value, list[int]]:
    """Return ``x[N, H, W, C]`` and ``padding`` without the last rows and columns that no window reads.

    ``extents`` are the sizes of a window: TOSA requires that the windows divide the axis.
    """
    sizes, pad = [size or 0 for size in emit.shape(x)], list(padding)
    for axis, (extent, step) in enumerate(zip(extents, stride, strict=True)):
        before, after = pad[2 * axis : 2 * axis + 2]
        unread = (sizes[axis + 1] + before + after - extent) % step
        pad[2 * axis + 1] -= min(after, unread)
        sizes[axis + 1] -= unread - min(after, unread)
    if tuple(sizes) != emit.shape(x):
        x = emit.slice(x, [0] * 4, sizes)
    return x, pad


def convolution(
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
    sums = accumulator(emit, x)
    channels, depth, *kernel = (size or 0 for size in emit.shape(weight))
    extents = [by * (size - 1) + 1 for by, size in zip(dilation, kernel, strict=True)]
    x, pad = exact(emit, x, extents, stride, padding)
    batch, *sizes, of_x = (size or 0 for size in emit.shape(x))
    counts = [
        (size + sum(pad[2 * axis : 2 * axis + 2]) - extents[axis]) // stride[axis] + 1
        for axis, size in enumerate(sizes)
    ]
    zeros = [constant(emit, zero_point, emit.element(x)), emit.constant_i8(0)]
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
    each = channels // groups
    parts: list[ir.Value] = []
    for group in range(groups):
        part = emit.slice(x, [0, 0, 0, group * depth], [batch, *sizes, depth])
        filters = emit.slice(weight, [group * each, 0, 0, 0], [each, *kernel, depth])
        parts.append(emitted("tosa.conv2d", part, filters, emit.slice(bias, [group * each], [each])))
    return emit.concat(parts, 3)
