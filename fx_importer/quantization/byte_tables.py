"""Values of 15 bits in two tables of bytes, in eager PyTorch and in TOSA, and the fixed-point steps around them."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.tosa_emission import emit_rescale


def bytes_of(values: Tensor) -> list[Tensor]:
    """Return the high and the low byte of ``values`` of 15 bits, the low one less 128."""
    return [(values >> 8).to(torch.int8), ((values & 255) - 128).to(torch.int8)]


def lookup_bytes(place: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """Return values of 15 bits, as int64, of tables of their bytes; ``low`` is less 128."""
    return high[place].to(torch.int64) * 256 + low[place] + 128


_ONE = ([2**30], [30])

_BYTE = ([2**30], [22])
"""The multiplier and the shift of 256."""


def emit_byte_lookup(emit: TosaEmitter, place: ir.Value, high: ir.Value, low: ir.Value) -> ir.Value:
    """Emit values of 15 bits, as i32, of tables of their bytes; ``low`` is less 128."""
    upper = emit_rescale(emit, emit.value("tosa.table", place.type, place, high), "i32", *_BYTE, 0, 0)
    return emit.add(upper, emit_rescale(emit, emit.value("tosa.table", place.type, place, low), "i32", *_ONE, -128, 0))


def emit_upper_byte(emit: TosaEmitter, mantissa: ir.Value) -> ir.Value:
    """Emit the places of ``mantissa``, positive i32, in a table of its upper 8 bits."""
    return emit_rescale(emit, emit_right_shift(emit, mantissa, emit.constant(23, "i32")), "i8", *_ONE, 0, -128)


def emit_product(emit: TosaEmitter, x: ir.Value, y: ir.Value, shift: int) -> ir.Value:
    """Emit the product of i32, halved ``shift`` times and rounded to the nearest, halves up."""
    pairs = zip(emit.shape(x), emit.shape(y), strict=True)
    sizes = [None if a is None or b is None else max(a, b) for a, b in pairs]
    return emit.value("tosa.mul", emit.tensor(sizes, "i32"), x, y, emit.constant_i8(shift))


def emit_right_shift(emit: TosaEmitter, x: ir.Value, by: ir.Value, *, rounding: bool = False) -> ir.Value:
    """Emit ``x`` halved ``by`` times, rounded down, or to the nearest, halves up."""
    by = emit.broadcast(by, x)
    attributes = {"round": emit.attribute("true" if rounding else "false")}
    return emit.op("tosa.arithmetic_right_shift", [x.type], [x, by], attributes).result
