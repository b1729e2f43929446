"""Functions of int16 as TOSA's tables of 513 entries, whose error is known; values of 15 bits in tables of bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.integer_operators import requantized
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of
from fx_importer.quantization.tosa_emission import emit_rescale


def bytes_of(values: Tensor) -> list[Tensor]:
    """Return the high and the low byte of ``values`` of 15 bits, the low one less 128."""
    return [(values >> 8).to(torch.int8), ((values & 255) - 128).to(torch.int8)]


def lookup_bytes(index: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """Return values of 15 bits, as int64, of tables of their bytes; ``low`` is less 128."""
    return aten.index(high, [index]).to(torch.int64) * 256 + aten.index(low, [index]) + 128


_ONE = ([2**30], [30])

_BYTE = ([2**30], [22])
"""The multiplier and the shift of 256."""


def emit_byte_lookup(emit: TosaEmitter, index: ir.Value, high: ir.Value, low: ir.Value) -> ir.Value:
    """Emit values of 15 bits, as i32, of tables of their bytes; ``low`` is less 128."""
    upper = emit_rescale(emit, emit.value("tosa.table", index.type, index, high), "i32", *_BYTE, 0, 0)
    return emit.add(upper, emit_rescale(emit, emit.value("tosa.table", index.type, index, low), "i32", *_ONE, -128, 0))


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


FRACTION = 7
"""Bits between two entries of a table."""
MAX_STEPS = {16: 8, 8: 1}
"""The largest accepted error of a table, in steps of its result, by the bits of the result."""
_LOW, _HIGH = -(2**15), 2**15 - 1
_MAX_GAIN = 2**12
STEPS = "steps_of_table"
"""Key in ``meta`` of an interpolated table: its largest error in steps of the result."""


@dataclass(frozen=True)
class WideTable:
    """A table of the operand times ``gain``, saturated; interpolations are rescaled by ``multiplier * 2 ** -shift``."""

    entries: Tensor
    gain: int
    multiplier: int
    shift: int
    steps: int
    """The largest difference from the function, rounded, in steps of the result."""


def interpolate(x: Tensor, entries: Tensor) -> Tensor:
    """Return ``entries`` between each 128th of int16, with 7 more bits, as int32. TOSA 1.0, ``TABLE``."""
    places = x.to(torch.int64) - _LOW
    base = aten.index(entries, [places >> FRACTION]).to(torch.int32)
    slope = aten.index(entries, [(places >> FRACTION) + 1]).to(torch.int32) - base
    return base * 2**FRACTION + slope * (places & (2**FRACTION - 1)).to(torch.int32)


def wide_table_of(function: Callable[[Tensor], Tensor], levels: Tensor, scale: float, params: Params) -> WideTable:
    """Return ``function`` as a table of int16 operands of ``scale``, whose values are among ``levels``.

    A function that is constant beyond some operands, such as a sigmoid, may have a table of only those between. The
    error is computed at all ``levels``.

    Raises:
        NoIntegerForm: if the table differs from the function by more than `MAX_STEPS`, as where the function jumps, or
            if the function is not finite.
    """
    exact = _rounded(function(levels.float() * scale), params)
    reasons: list[str] = []
    for gain in sorted({1, _gain(levels, exact)}):
        try:
            table = _table(function, levels, exact, gain, scale, params)
        except NoIntegerForm as reason:
            reasons.append(str(reason))
            continue
        if table.steps <= MAX_STEPS[params.bits]:
            return table
        reasons.append(
            f"it jumps, or is steep: TOSA's table of int16 would be up to {table.steps} steps of int{params.bits} off, "
            f"and {MAX_STEPS[params.bits]} are accepted"
        )
    raise NoIntegerForm(reasons[-1])


def _rounded(values: Tensor, params: Params) -> Tensor:
    """Return ``values`` quantized with ``params``, as int64. Raises `NoIntegerForm` unless they are finite."""
    if not bool(values.isfinite().all()):
        raise NoIntegerForm("it is not finite everywhere in the range of its operand")
    return ((values * (1 / params.scale)).round() + params.zero_point).clamp(params.low, params.high).long()


def _gain(levels: Tensor, exact: Tensor) -> int:
    """Return the factor that spreads the operands at which the function varies over int16."""
    rising = torch.nonzero(exact.diff() != 0).flatten()
    if len(rising) == 0:
        return 1
    reach = int(levels[[int(rising[0]), int(rising[-1]) + 1]].abs().max())
    return max(1, min(_MAX_GAIN, _HIGH // max(reach, 1)))


def _table(
    function: Callable[[Tensor], Tensor], levels: Tensor, exact: Tensor, gain: int, scale: float, params: Params
) -> WideTable:
    """Return the table of ``function`` with ``gain``. Raises `NoIntegerForm` if TOSA has no such table."""
    places = (torch.arange(513) * 2**FRACTION + _LOW).float() * (scale / gain)
    values = function(places)
    if not bool(values.isfinite().all()):
        raise NoIntegerForm("it is not finite everywhere in the range of its operand")
    finer = 1 if params.bits == 16 else 2**FRACTION
    entries = (values.double() / params.scale * finer).round().clamp(_LOW, _HIGH)
    if int(entries.diff().abs().max()) >= 2**15:
        raise NoIntegerForm("it rises by more than TOSA's table of int16 can")
    entries = entries.to(torch.int16)
    multiplier, shift = multiplier_and_shift(2.0**-FRACTION / finer, 2.0**22)
    operands = (levels * gain).clamp(_LOW, _HIGH)
    bytes_ = requantized(interpolate(operands, entries), multiplier, shift, *out_of(params))
    return WideTable(entries, gain, multiplier, shift, int((bytes_.long() - exact).abs().max()))
