"""Casts between i64 and the types that TOSA's specification has no cast for: it has i1 and i32 only."""

from __future__ import annotations

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import with_element
from fx_importer.mlir.emit.tosa import TosaOps

_FLOATS = ("f32", "f16", "bf16")


def cast(emit: TosaOps, value: ir.Value, to: ir.Type) -> ir.Value:
    """Return ``value`` as a tensor of the type ``to``, which has its shape. Integers wrap, floats are rounded."""
    source, target = emit.element(value), emit.element(to)
    if source == target:
        return value
    if source == "i64" and target in _FLOATS:
        result = _i64_to_f32(_Arithmetic(emit, value))
        return result if target == "f32" else emit.value("tosa.cast", to, result)
    if target == "i64" and source in _FLOATS:
        return _f32_to_i64(_Arithmetic(emit, value if source == "f32" else emit.cast_element(value, "f32")))
    if "i64" in (source, target) and not {source, target} & {"i1", "i32"}:
        value = emit.cast_element(value, "i32")
    return emit.value("tosa.cast", to, value)


class _Arithmetic:
    """Arithmetic on tensors of the shape of ``value``."""

    def __init__(self, emit: TosaOps, value: ir.Value):
        self.value = value
        self._emit = emit
        self._ones = [1] * ir.RankedTensorType(value.type).rank

    def constant(self, number: float, element: str) -> ir.Value:
        """Return ``number`` as a tensor of one element, of the same rank."""
        dtype = {"f32": np.float32, "i64": np.int64}[element]
        return self._emit.const_array(np.full(self._ones, number, dtype))

    def to(self, element: str, x: ir.Value) -> ir.Value:
        return self._emit.value("tosa.cast", with_element(self.value.type, element), x)

    def op(self, name: str, element: str, *operands: ir.Value) -> ir.Value:
        return self._emit.value(f"tosa.{name}", with_element(self.value.type, element), *operands)

    def scaled(self, x: ir.Value, factor: ir.Value) -> ir.Value:
        return self._emit.product(with_element(self.value.type, "f32"), x, factor)

    def shifted(self, x: ir.Value, by: int) -> ir.Value:
        """Return ``x >> by``."""
        exact = {"round": ir.BoolAttr.get(False, self._emit.context)}
        return self._emit.op(
            "tosa.arithmetic_right_shift", [self.value.type], [x, self.constant(by, "i64")], exact
        ).result


def _i64_to_f32(a: _Arithmetic) -> ir.Value:
    """Emit the nearest float32 of i64, ties to even, as processors convert.

    Up to 2^47, an integer is the sum of two parts of 24 bits, each exact in float32: the sum is rounded once. Beyond,
    its last 16 bits can only break a tie: one sticky bit is set where any of them is.
    """
    x = a.value
    ends = a.shifted(x, 47)  # 0 or -1 below 2^47
    zero, minus_one = a.constant(0, "i64"), a.constant(-1, "i64")
    small = a.op("logical_or", "i1", a.op("equal", "i1", ends, zero), a.op("equal", "i1", ends, minus_one))
    lost = a.op("bitwise_and", "i64", x, a.constant(2**16 - 1, "i64"))
    sticky = a.to("i64", a.op("greater", "i1", lost, zero))
    reduced = a.op("bitwise_or", "i64", a.shifted(x, 16), sticky)
    y = a.op("select", "i64", small, x, reduced)
    high = a.to("f32", a.to("i32", a.shifted(y, 24)))
    low = a.to("f32", a.to("i32", a.op("bitwise_and", "i64", y, a.constant(2**24 - 1, "i64"))))
    total = a.op("add", "f32", a.scaled(high, a.constant(2.0**24, "f32")), low)
    factor = a.op("select", "f32", small, a.constant(1.0, "f32"), a.constant(2.0**16, "f32"))
    return a.scaled(total, factor)


def _f32_to_i64(a: _Arithmetic) -> ir.Value:
    """Emit the integer part of float32 between -2^63 and 2^63: three parts of 21 bits each, all exact."""
    total: ir.Value | None = None
    rest = a.value
    for bits in (42, 21, 0):
        part = rest if bits == 0 else a.scaled(rest, a.constant(2.0**-bits, "f32"))
        negative = a.op("greater", "i1", a.constant(0.0, "f32"), part)
        part = a.op("select", "f32", negative, a.op("ceil", "f32", part), a.op("floor", "f32", part))
        integer = a.to("i64", a.to("i32", part))
        if bits:
            rest = a.op("sub", "f32", rest, a.scaled(part, a.constant(2.0**bits, "f32")))
            shift = a.constant(bits, "i64")
            integer = a.op("logical_left_shift", "i64", integer, shift)
        total = integer if total is None else a.op("add", "i64", total, integer)
    assert total is not None
    return total
