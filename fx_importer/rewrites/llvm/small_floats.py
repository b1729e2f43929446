"""Conversions of floats of 8 bits, which LLVM does not have, in integer arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.walk import operations, rewrite


@dataclass(frozen=True)
class Format:
    """A format of sign, exponent and fraction in 8 bits."""

    fraction: int
    bias: int
    nan: int
    """The magnitude bits of NaN; in the fnuz formats, whose only NaN has the bits of minus zero, 0x80."""
    overflow: int
    """The magnitude bits of larger numbers: infinity, or NaN in formats without infinity."""

    @property
    def largest(self) -> int:
        """The magnitude bits of the largest finite number."""
        return self.overflow - 1

    @property
    def has_infinity(self) -> bool:
        return self.overflow < self.nan

    @property
    def has_minus_zero(self) -> bool:
        return self.nan < 0x80


FORMATS = {
    "f8E4M3FN": Format(3, 7, nan=0x7F, overflow=0x7F),
    "f8E5M2": Format(2, 15, nan=0x7F, overflow=0x7C),
    "f8E4M3FNUZ": Format(3, 8, nan=0x80, overflow=0x80),
    "f8E5M2FNUZ": Format(2, 16, nan=0x80, overflow=0x80),
}
"""The formats that torch has, by the name of the type, but e8m0, which ``arith-expand`` converts."""
_F32_INFINITY = 255 << 23


@rewrite("fx-importer-expand-small-floats")
def expand_small_floats(module: ir.Operation) -> None:
    """Replace ``arith.extf`` of and ``arith.truncf`` to the types of `FORMATS` in ``module``, which is scalar.

    As in MLIR, numbers are rounded to nearest, ties to even; those that are too large become infinity, or NaN in a
    format without it.
    """
    for op in operations(module.operation, ("arith.extf", "arith.truncf")):
        emit = ArithOps.before(op)
        (value,), (result,) = op.operands, op.results
        if (form := FORMATS.get(str(value.type))) is not None:
            replace(op, _converted(emit, _decoded(_Bits(emit), value, form), result.type))
        elif (form := FORMATS.get(str(result.type))) is not None:
            bits = _encoded(_Bits(emit), _converted(emit, value, emit.type("f32")), form)
            replace(op, emit.value("arith.bitcast", result.type, bits))


def _converted(emit: ArithOps, value: ir.Value, wanted: ir.Type) -> ir.Value:
    """Convert between ``f32`` and another type of at least 16 bits."""
    have, want = ir.FloatType(value.type).width, ir.FloatType(wanted).width
    if value.type == wanted:
        return value
    return emit.value("arith.extf" if have < want else "arith.truncf", wanted, value)


@dataclass(frozen=True)
class _Bits:
    """Emits ``i32`` arithmetic."""

    emit: ArithOps

    def constant(self, value: int) -> ir.Value:
        return self.emit.constant_integer(value, self.emit.type("i32"))

    def op(self, name: str, left: ir.Value, right: int | ir.Value) -> ir.Value:
        right = self.constant(right) if isinstance(right, int) else right
        return self.emit.value(f"arith.{name}", "i32", left, right)

    def test(self, predicate: str, left: ir.Value, right: int) -> ir.Value:
        return self.emit.compare_integers(predicate, left, self.constant(right))

    def select(self, condition: ir.Value, yes: int | ir.Value, no: ir.Value) -> ir.Value:
        return self.emit.select_value(condition, self.constant(yes) if isinstance(yes, int) else yes, no)

    def cast(self, name: str, type_: str, value: ir.Value) -> ir.Value:
        return self.emit.value(f"arith.{name}", type_, value)


def _decoded(bits: _Bits, value: ir.Value, form: Format) -> ir.Value:
    """Return ``f32``: exponent and fraction are moved, and subnormal numbers are multiples of the smallest."""
    whole = bits.cast("extui", "i32", bits.cast("bitcast", "i8", value))
    magnitude = bits.op("andi", whole, 0x7F)
    moved = bits.op("shli", magnitude, 23 - form.fraction)
    normal = bits.op("addi", moved, (127 - form.bias) << 23)
    smallest = bits.emit.constant_scalar(2.0 ** (1 - form.bias - form.fraction), bits.emit.type("f32"))
    tiny = bits.emit.value("arith.mulf", "f32", bits.cast("uitofp", "f32", magnitude), smallest)
    result = bits.select(bits.test("slt", magnitude, 1 << form.fraction), bits.cast("bitcast", "i32", tiny), normal)
    nan = _F32_INFINITY | 1 << 22
    if form.has_infinity:
        result = bits.select(bits.test("eq", magnitude, form.overflow), _F32_INFINITY, result)
    if form.has_minus_zero:
        first_nan = form.overflow + form.has_infinity
        result = bits.select(bits.test("sge", magnitude, first_nan), nan, result)
    result = bits.op("ori", result, bits.op("shli", bits.op("andi", whole, 0x80), 24))
    if not form.has_minus_zero:
        result = bits.select(bits.test("eq", whole, form.nan), nan, result)
    return bits.cast("bitcast", "f32", result)


def _encoded(bits: _Bits, value: ir.Value, form: Format) -> ir.Value:
    """Return the ``i8`` of an ``f32``."""
    whole = bits.cast("bitcast", "i32", value)
    magnitude = bits.op("andi", whole, 0x7FFFFFFF)
    lost = 23 - form.fraction
    odd = bits.op("andi", bits.op("shrui", magnitude, lost), 1)
    rounded = bits.op("addi", bits.op("addi", magnitude, odd), (1 << (lost - 1)) - 1 - ((127 - form.bias) << 23))
    normal = bits.op("shrsi", rounded, lost)
    # Added to the power of two whose last digit is the smallest number, float32 addition rounds to a multiple of that.
    scale = 2.0 ** (1 - form.bias - form.fraction + 23)
    constant = bits.emit.constant_scalar(scale, bits.emit.type("f32"))
    total = bits.emit.value("arith.addf", "f32", bits.cast("bitcast", "f32", magnitude), constant)
    tiny = bits.op("subi", bits.cast("bitcast", "i32", total), int(127 + math.log2(scale)) << 23)
    result = bits.select(bits.test("slt", magnitude, (127 - form.bias + 1) << 23), tiny, normal)
    result = bits.select(bits.test("sgt", result, form.largest), form.overflow, result)
    result = bits.select(bits.test("sge", magnitude, _F32_INFINITY), form.overflow, result)
    result = bits.select(bits.test("sgt", magnitude, _F32_INFINITY), form.nan, result)
    sign = bits.op("andi", bits.op("shrui", whole, 24), 0x80)
    signed = bits.op("ori", result, sign)
    if not form.has_minus_zero:  # zero has no sign: its bits with one are NaN
        signed = bits.select(bits.test("eq", result, 0), result, signed)
    return bits.cast("trunci", "i8", signed)
