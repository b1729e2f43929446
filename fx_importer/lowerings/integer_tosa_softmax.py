"""Softmax of i8 in TOSA: powers by two tables of bytes, and a quotient of 32 bits."""

from __future__ import annotations

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
    if mask is not None:
        powers = emit.select(mask, powers, emit.constant(0, "i32"))
    return result_of(emit, quotients(emit, powers, axis), [multiplier], [shift], *out)


def quotients(emit: TosaEmitter, powers: ir.Value, axis: int) -> ir.Value:
    """Emit the quotients of powers of 15 bits and their sums along ``axis``, with 15 bits, rounded."""
    sums = emit.maximum(emit.sum(powers, [axis], keepdim=True), 1)
    one = emit.constant(1, "i32")
    rounding = emit.attribute("false")
    half = emit.op(
        "tosa.arithmetic_right_shift", [sums.type], [sums, _of_rank(emit, one, sums)], {"round": rounding}
    ).result
    return emit.div(emit.add(emit.mul(powers, 2**15), half), sums)


def looked_up(emit: TosaEmitter, place: ir.Value, high: ir.Value, low: ir.Value) -> ir.Value:
    """Emit values of 15 bits, as i32, of tables of their bytes; ``low`` is less 128."""
    upper = rescaled(emit, emit.value("tosa.table", place.type, place, high), "i32", *_BYTE, 0, 0)
    return emit.add(upper, rescaled(emit, emit.value("tosa.table", place.type, place, low), "i32", *_ONE, -128, 0))


def _of_rank(emit: TosaEmitter, x: ir.Value, like: ir.Value) -> ir.Value:
    return emit.reshape(x, [1] * len(emit.shape(like)))
