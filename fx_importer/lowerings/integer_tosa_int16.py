"""Operators on i16 activations in TOSA, with i8 weights, i48 accumulators and interpolated tables."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.lowerings.integer_tosa import rescaled, result_of
from fx_importer.lowerings.integer_tosa_softmax import quotients
from fx_importer.lowerings.integer_tosa_windows import convolution, nchw, nhwc
from fx_importer.lowerings.lowering_rules import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import with_element
from fx_importer.quantization import integer


@lowers(integer.wide_conv2d.default, into="tosa")
def wide_conv2d(
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
    """Emit a convolution of channels last, with its rescale."""
    held = _bias(emit, bias)
    sums = convolution(emit, nhwc(emit, x), weight, held, stride, padding, dilation, groups, 0)
    return nchw(emit, result_of(emit, sums, multipliers, shifts, *out))


@lowers(integer.wide_linear.default, into="tosa")
def wide_linear(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a convolution of one by one: TOSA's product of matrices has no bias."""
    (channels, depth), shape = emit.shape(weight), emit.shape(x)
    rows = emit.reshape(x, [-1, 1, 1, depth or 0])
    kernel = emit.reshape(weight, [channels or 0, depth or 0, 1, 1])
    sums = convolution(emit, rows, kernel, _bias(emit, bias), (1, 1), (0, 0, 0, 0), (1, 1), 1, 0)
    result = result_of(emit, sums, multipliers, shifts, *out)
    return emit.reshape(result, [*(size or 0 for size in shape[:-1]), channels or 0])


def _bias(emit: TosaEmitter, bias: Sequence[int]) -> ir.Value:
    return emit.tosa.const(emit.attribute(f"dense<{list(bias)}> : tensor<{len(bias)}xi48>"))


@lowers(integer.wide_table.default, into="tosa")
def wide_table(emit: TosaEmitter, x: ir.Value, entries: ir.Value, multiplier: int, shift: int, *out: int) -> ir.Value:
    """Emit a table of 513 entries, and a rescale."""
    return result_of(emit, _interpolated(emit, x, entries), [multiplier], [shift], *out)


@lowers(integer.wide_softmax.default, into="tosa")
def wide_softmax(
    emit: TosaEmitter,
    x: ir.Value,
    entries: ir.Value,
    reciprocals: Sequence[ir.Value],
    place_multiplier: int,
    place_shift: int,
    mask: ir.Value | None,
    axis: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit differences from the largest element, powers of them, and their quotients with the sum."""
    if mask is not None:
        x = emit.select(mask, x, emit.constant(-(2**15), "i16"))
    one = ([2**30], [30], 0, 0)
    largest = emit.amax(x, [axis], keepdim=True)
    below = emit.sub(rescaled(emit, x, "i32", *one), rescaled(emit, largest, "i32", *one))
    # A zero point of i16 is zero: it is added in i32.
    place = emit.add(rescaled(emit, below, "i32", [place_multiplier], [place_shift], 0, 0), 2**15 - 1)
    place = rescaled(emit, emit.maximum(place, -(2**15)), "i16", *one)
    powers = rescaled(emit, _interpolated(emit, place, entries), "i32", [2**30], [37], 0, 0)
    return result_of(emit, quotients(emit, powers, reciprocals, mask, axis), [multiplier], [shift], *out)


def _interpolated(emit: TosaEmitter, x: ir.Value, entries: ir.Value) -> ir.Value:
    return emit.value("tosa.table", with_element(x.type, "i32"), x, entries)


INT16 = (wide_conv2d, wide_linear, wide_table, wide_softmax)
"""The rules of operators on i16."""
