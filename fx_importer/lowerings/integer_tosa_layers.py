"""Normalization, resizes and transposed convolutions of i8 in TOSA."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.lowerings.integer_tosa import RULES, rescaled, result_of
from fx_importer.lowerings.integer_tosa_int16 import INT16
from fx_importer.lowerings.integer_tosa_softmax import looked_up, product, shifted, softmax, upper_byte
from fx_importer.lowerings.integer_tosa_windows import nchw, nhwc
from fx_importer.lowerings.lowering_registry import Lowerings
from fx_importer.lowerings.lowering_rules import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization import integer


@lowers(integer.normalize.default, into="tosa")
def normalize(
    emit: TosaEmitter,
    x: ir.Value,
    high: ir.Value,
    low: ir.Value,
    gain: ir.Value,
    offset: ir.Value,
    axes: Sequence[int],
    centers: bool,
    zero_point: int,
    fraction: int,
    mean_multiplier: int,
    mean_shift: int,
    halvings: int,
    eps: int,
    gain_shift: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit the arithmetic of the operator in i32, with ``tosa.clz`` for the leading zeros."""
    parts = rescaled(emit, x, "i32", [2**30], [30 - fraction], zero_point, 0)
    if centers:
        wide = rescaled(emit, x, "i32", [2**30], [30], zero_point, 0)
        mean = rescaled(emit, emit.sum(wide, axes, keepdim=True), "i32", [mean_multiplier], [mean_shift], 0, 0)
        parts = emit.sub(parts, mean)
    squares = rescaled(emit, emit.mul(parts, parts), "i32", [2**30], [30 + halvings], 0, 0)
    sums = emit.maximum(emit.add(emit.sum(squares, axes, keepdim=True), eps), 1)
    zeros = emit.value("tosa.clz", sums.type, sums)
    pairs = shifted(emit, emit.sub(zeros, 1), emit.constant(1, "i32"))
    mantissa = emit.value("tosa.logical_left_shift", sums.type, sums, emit.add(pairs, pairs))
    guess = looked_up(emit, upper_byte(emit, mantissa), high, low)
    error = product(emit, mantissa, emit.mul(guess, guess), 30)
    root = product(emit, guess, emit.sub(emit.constant(3 * 2**29, "i32"), error), 17)
    wide = product(emit, parts, root, 13)
    quotient = shifted(emit, wide, emit.sub(emit.constant(15, "i32"), pairs), rounding=True)
    result = emit.add(product(emit, quotient, gain, gain_shift), offset)
    return result_of(emit, result, [multiplier], [shift], *out)


@lowers(integer.resize_nearest.default, into="tosa")
def resize_nearest(
    emit: TosaEmitter, x: ir.Value, _sizes: object, scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> ir.Value:
    """Emit a resize of channels last."""
    return nchw(emit, resized(emit, x, "NEAREST_NEIGHBOR", scale, offset, border))


@lowers(integer.resize_bilinear.default, into="tosa")
def resize_bilinear(
    emit: TosaEmitter,
    x: ir.Value,
    _sizes: object,
    scale: Sequence[int],
    offset: Sequence[int],
    border: Sequence[int],
    zero_point: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit a resize of channels last, to i32, and a rescale."""
    sums = resized(emit, x, "BILINEAR", scale, offset, border)
    if zero_point:
        sums = emit.sub(sums, zero_point * scale[0] * scale[2])
    return nchw(emit, result_of(emit, sums, [multiplier], [shift], *out))


def resized(
    emit: TosaEmitter, x: ir.Value, mode: str, scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> ir.Value:
    """Emit a resize of ``x[N, C, H, W]`` with channels last: elements of i8, or sums of i32 for the mode BILINEAR."""
    x, (batch, channels, *sizes) = nhwc(emit, x), emit.shape(emit.results[0])
    kind = emit.tensor([batch, *sizes, channels], emit.element(x) if mode.startswith("N") else "i32")
    operands = [x, *map(emit.tosa.const_shape, (scale, offset, border))]
    return emit.op("tosa.resize", [kind], operands, {"mode": emit.attribute(f"#tosa.resize_mode<{mode}>")}).result


@lowers(integer.conv_transpose2d.default, into="tosa")
def conv_transpose2d(
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
    filters = emit.transpose(weight, (0, 2, 3, 1))
    zeros = [emit.constant_i8(zero_point), emit.constant_i8(0)]
    attributes = {
        "out_pad": emit.array(padding),
        "stride": emit.array(stride),
        "acc_type": emit.attribute("i32"),
    }
    batch, channels, *sizes = emit.shape(emit.results[0])
    kind = emit.tensor([batch, *sizes, channels], "i32")
    sums = emit.op("tosa.transpose_conv2d", [kind], [nhwc(emit, x), filters, bias, *zeros], attributes).result
    return nchw(emit, result_of(emit, sums, multipliers, shifts, *out))


INTEGER_TOSA = Lowerings((*RULES, *INT16, softmax, normalize, resize_nearest, resize_bilinear, conv_transpose2d))
"""The rules of all operators."""
