"""The operators ``fx_importer_integer.*`` in TOSA: i8 tensors with zero points, i32 accumulators, and rescales."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fx_importer.lowerings.integer_tosa_windows import accumulator, constant, convolution, exact, nchw, nhwc
from fx_importer.lowerings.lowering_rules import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import with_element
from fx_importer.quantization import integer

_UNCHANGED = (2**30, 30)
"""The multiplier and the shift of one."""


@lowers(integer.to_signed.default, into="tosa")
def to_signed(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the rescale of uint8 to int8."""
    return rescaled(emit, x, "i8", [_UNCHANGED[0]], [_UNCHANGED[1]], -128, 0, unsigned="input_unsigned")


@lowers(integer.to_unsigned.default, into="tosa")
def to_unsigned(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit the rescale of int8 to uint8."""
    return rescaled(emit, x, "i8", [_UNCHANGED[0]], [_UNCHANGED[1]], 0, -128, unsigned="output_unsigned")


@lowers(integer.rescale.default, into="tosa")
def rescale(emit: TosaEmitter, x: ir.Value, zero_point: int, multiplier: int, shift: int, *out: int) -> ir.Value:
    """Emit a rescale to another zero point, and a clamp."""
    if (multiplier, shift) == _UNCHANGED and zero_point == out[0] and x.type == emit.results[0]:
        return _clamped(emit, x, *out[1:])
    return result_of(emit, x, [multiplier], [shift], *out, zero_point=zero_point)


@lowers(integer.binary.default, into="tosa")
def binary(
    emit: TosaEmitter,
    kind: str,
    a: ir.Value,
    b: ir.Value,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit operands rescaled to i32, the operation, and a rescale."""
    wide = [
        rescaled(emit, x, "i32", [by], [bits], zero_point, 0)
        for x, zero_point, by, bits in zip((a, b), zero_points, multipliers, shifts, strict=True)
    ]
    combine = {"add": emit.add, "sub": emit.sub, "mul": emit.mul}[kind]
    return result_of(emit, combine(*wide), [multiplier], [shift], *out)


@lowers(integer.conv2d.default, into="tosa")
def conv2d(
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
    sums = convolution(emit, nhwc(emit, x), weight, bias, stride, padding, dilation, groups, zero_point)
    return nchw(emit, result_of(emit, sums, multipliers, shifts, *out))


@lowers(integer.linear.default, into="tosa")
def linear(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    _offset: ir.Value,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a convolution of one by one: TOSA's product of matrices has no bias."""
    (channels, depth), shape = emit.shape(weight), emit.shape(x)
    rows = emit.reshape(x, [-1, 1, 1, depth or 0])
    kernel = emit.reshape(weight, [channels or 0, depth or 0, 1, 1])
    sums = convolution(emit, rows, kernel, bias, (1, 1), (0, 0, 0, 0), (1, 1), 1, zero_point)
    result = result_of(emit, sums, multipliers, shifts, *out)
    return emit.reshape(result, [*(size or 0 for size in shape[:-1]), channels or 0])


@lowers(integer.matmul.default, into="tosa")
def matmul(
    emit: TosaEmitter, a: ir.Value, b: ir.Value, zero_points: Sequence[int], multiplier: int, shift: int, *out: int
) -> ir.Value:
    """Emit a batch of products of matrices."""
    left, right = (emit.reshape(x, [-1, *(size or 0 for size in emit.shape(x)[-2:])]) for x in (a, b))
    zeros = [constant(emit, each, emit.element(a)) for each in zero_points]
    kind = emit.tensor([*emit.shape(left)[:2], emit.shape(right)[-1]], accumulator(emit, a))
    result = result_of(emit, emit.value("tosa.matmul", kind, left, right, *zeros), [multiplier], [shift], *out)
    sizes = [*emit.shape(a)[:-1], emit.shape(b)[-1]]
    return emit.reshape(result, [size or 0 for size in sizes])


@lowers(integer.sum.default, into="tosa")
def reduce_sum(
    emit: TosaEmitter,
    x: ir.Value,
    axes: Sequence[int],
    keepdim: bool,
    zero_point: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit sums in i32, and a rescale."""
    wide = rescaled(emit, x, "i32", [_UNCHANGED[0]], [_UNCHANGED[1]], zero_point, 0)
    return result_of(emit, emit.sum(wide, axes, keepdim), [multiplier], [shift], *out)


@lowers(integer.max_pool2d.default, into="tosa")
def max_pool2d(
    emit: TosaEmitter, x: ir.Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> ir.Value:
    """Emit a pool of channels last."""
    x, pad = exact(emit, nhwc(emit, x), kernel, stride, padding)
    attributes = _windows(emit, kernel, stride, pad)
    return nchw(emit, emit.op("tosa.max_pool2d", [_pooled(emit, x)], [x], attributes).result)


@lowers(integer.avg_pool2d.default, into="tosa")
def avg_pool2d(
    emit: TosaEmitter, x: ir.Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], zero: int
) -> ir.Value:
    """Emit a pool of channels last."""
    x, pad = exact(emit, nhwc(emit, x), kernel, stride, padding)
    attributes = _windows(emit, kernel, stride, pad) | {"acc_type": emit.attribute("i32")}
    zeros = [emit.constant_i8(zero)] * 2
    return nchw(emit, emit.op("tosa.avg_pool2d", [_pooled(emit, x)], [x, *zeros], attributes).result)


@lowers(integer.table.default, into="tosa")
def table(emit: TosaEmitter, x: ir.Value, entries: ir.Value) -> ir.Value:
    """Emit a table."""
    return emit.value("tosa.table", x.type, x, entries)


def _pooled(emit: TosaEmitter, x: ir.Value) -> ir.Type:
    """Return the type of a pool of ``x[N, H, W, C]``."""
    batch, channels, height, width = emit.shape(emit.results[0])
    return emit.tensor([batch, height, width, channels], emit.element(x))


def _windows(
    emit: TosaEmitter, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> dict[str, ir.Attribute]:
    return {"kernel": emit.array(kernel), "stride": emit.array(stride), "pad": emit.array(padding)}


def result_of(
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
    narrow = rescaled(emit, sums, f"i{bits}", multipliers, shifts, zero_point, out_zero_point)
    return _clamped(emit, narrow, low, high)


def rescaled(
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
        constant(emit, zero_point, emit.element(x)),
        constant(emit, out_zero_point, element),
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


def _clamped(emit: TosaEmitter, x: ir.Value, low: int, high: int) -> ir.Value:
    element = emit.element(x)
    half = 2 ** (int(element[1:]) - 1)
    if (low, high) == (-half, half - 1):
        return x
    bounds = {"min_val": emit.attribute(f"{low} : {element}"), "max_val": emit.attribute(f"{high} : {element}")}
    return emit.op("tosa.clamp", [x.type], [x], bounds).result


RULES = (to_signed, to_unsigned, rescale, binary, conv2d, linear, matmul, reduce_sum, max_pool2d, avg_pool2d, table)
"""The rules of operators with one accumulator."""
