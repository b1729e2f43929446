"""Softmax of i8 in TOSA: powers by two tables of bytes, and products with the reciprocal of their sum."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.lowerings.integer_tosa import rescaled, result_of
from fx_importer.lowerings.lowering_rules import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization import integer

_ONE = ([2**30], [30])
_BYTE = ([2**30], [22])
"""The multiplier and the shift of 256."""


@lowers(integer.softmax.default, into="tosa")
def softmax(
    emit: TosaEmitter,
    x: ir.Value,
    high: ir.Value,
    low: ir.Value,
    reciprocals: Sequence[ir.Value],
    mask: ir.Value | None,
    axis: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit differences from the largest element, as i8, powers of them, and their quotients with the sum."""
    if mask is not None:
        x = emit.select(mask, x, emit.constant(-128, "i8"))
    largest = emit.amax(x, [axis], keepdim=True)
    below = emit.sub(rescaled(emit, x, "i32", *_ONE, 0, 0), rescaled(emit, largest, "i32", *_ONE, 0, 0))
    place = rescaled(emit, below, "i8", *_ONE, 0, 127)
    powers = looked_up(emit, place, high, low)
    return result_of(emit, quotients(emit, powers, reciprocals, mask, axis), [multiplier], [shift], *out)


def quotients(
    emit: TosaEmitter, powers: ir.Value, reciprocals: Sequence[ir.Value], mask: ir.Value | None, axis: int
) -> ir.Value:
    """Emit powers of 15 bits over their sums along ``axis``, with 15 bits."""
    if mask is not None:
        powers = emit.select(mask, powers, emit.constant(0, "i32"))
    sums = emit.maximum(emit.sum(powers, [axis], keepdim=True), 1)
    zeros = emit.value("tosa.clz", sums.type, sums)
    mantissa = emit.value("tosa.logical_left_shift", sums.type, sums, emit.sub(zeros, 1))
    guess = looked_up(emit, upper_byte(emit, mantissa), *reciprocals)
    error = product(emit, mantissa, guess, 16)
    reciprocal = product(emit, guess, emit.sub(emit.constant(2**30, "i32"), error), 14)
    wide = product(emit, powers, reciprocal, 15)
    return shifted(emit, wide, emit.sub(emit.constant(31, "i32"), zeros), rounding=True)


def upper_byte(emit: TosaEmitter, mantissa: ir.Value) -> ir.Value:
    """Emit the places of ``mantissa``, positive i32, in a table of its upper 8 bits."""
    return rescaled(emit, shifted(emit, mantissa, emit.constant(23, "i32")), "i8", *_ONE, 0, -128)


def product(emit: TosaEmitter, x: ir.Value, y: ir.Value, shift: int) -> ir.Value:
    """Emit the product of i32, halved ``shift`` times and rounded to the nearest, halves up."""
    sizes = [max(a or 0, b or 0) for a, b in zip(emit.shape(x), emit.shape(y), strict=True)]
    return emit.value("tosa.mul", emit.tensor(sizes, "i32"), x, y, emit.constant_i8(shift))


def shifted(emit: TosaEmitter, x: ir.Value, by: ir.Value, *, rounding: bool = False) -> ir.Value:
    """Emit ``x`` halved ``by`` times, rounded down, or to the nearest, halves up."""
    by = emit.broadcast(by, x)
    attributes = {"round": emit.attribute("true" if rounding else "false")}
    return emit.op("tosa.arithmetic_right_shift", [x.type], [x, by], attributes).result


def looked_up(emit: TosaEmitter, place: ir.Value, high: ir.Value, low: ir.Value) -> ir.Value:
    """Emit values of 15 bits, as i32, of tables of their bytes; ``low`` is less 128."""
    upper = rescaled(emit, emit.value("tosa.table", place.type, place, high), "i32", *_BYTE, 0, 0)
    return emit.add(upper, rescaled(emit, emit.value("tosa.table", place.type, place, low), "i32", *_ONE, -128, 0))
