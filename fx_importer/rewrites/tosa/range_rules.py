"""Ranges of the results of TOSA operations, from the ranges of their operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import is_resource, resource_bytes
from fx_importer.rewrites.tosa.intervals import Range, element_bits, join

LARGEST_FLOATS = 1 << 16
"""Constants of more floats than this have no range."""

_DTYPES = {
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "i1": np.bool_,
    "f64": np.float64,
    "f32": np.float32,
}

Operands = Sequence[Range | None]
RangeRule = Callable[[ir.Operation, Operands], Range | None]


def constant_array(attribute: ir.Attribute) -> np.ndarray | None:
    """Return the elements of a constant of integers, float32 or float64; None if they cannot be read."""
    type_ = ir.RankedTensorType(attribute.type)
    dtype = _DTYPES.get(str(type_.element_type))
    if dtype is None:
        return None
    if not is_resource(attribute):
        return np.array(attribute).reshape(type_.shape)
    data = resource_bytes(attribute, math.prod(type_.shape) * np.dtype(dtype).itemsize)
    return None if data is None else np.frombuffer(data, dtype).reshape(type_.shape)


def _constant(op: ir.Operation, _given: Operands) -> Range | None:
    attribute = op.attributes["values"]
    size = math.prod(ir.RankedTensorType(attribute.type).shape)
    integer = element_bits(op.results[0])
    if integer is None and size > LARGEST_FLOATS:
        return None
    array = constant_array(attribute)
    if array is None or not np.isfinite(array).all():
        return None
    if not array.size:
        return Range(0, 0)
    low, high = array.min(), array.max()
    return Range(low.item(), high.item()) if integer else Range(float(low), float(high))


def _first_operand(_op: ir.Operation, operands: Operands) -> Range | None:
    return operands[0]


def _union(*positions: int) -> RangeRule:
    return lambda _op, operands: join(operands[position] for position in positions)


def _boolean(_op: ir.Operation, _given: Operands) -> Range:
    return Range(0, 1)


def _greater(op: ir.Operation, operands: Operands) -> Range:
    """Return 1 where the comparison always holds, 0 where it never does, and both otherwise."""
    a, b = operands
    if a is None or b is None or element_bits(op.operands[0]) is None:
        return Range(0, 1)
    if op.name == "tosa.greater_equal":
        a = Range(a.low + 1, a.high + 1)
    return Range(int(a.low > b.high), int(a.high > b.low))


def _corners(of: Callable[[float, float], float]) -> RangeRule:
    """Return the rule of an operation that is monotonic in each operand."""

    def rule(_op: ir.Operation, operands: Operands) -> Range | None:
        a, b = operands[:2]
        if a is None or b is None:
            return None
        try:
            corners = [of(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        except (OverflowError, ZeroDivisionError, ValueError):
            return None
        return Range(min(corners), max(corners))

    return rule


def _product(op: ir.Operation, operands: Operands) -> Range | None:
    shift = operands[2]  # right shift of the product of i32
    return _corners(lambda x, y: x * y)(op, operands) if shift == Range(0, 0) else None


def _quotient(op: ir.Operation, operands: Operands) -> Range | None:
    divisor = operands[1]
    if divisor is None or divisor.low <= 0 <= divisor.high:
        return None if operands[0] is None else _magnitude(operands[0])  # division by 0 is undefined
    return _corners(lambda x, y: int(abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1))(op, operands)


def _magnitude(values: Range) -> Range:
    largest = max(abs(values.low), abs(values.high))
    return Range(-largest, largest)


def _absolute(_op: ir.Operation, operands: Operands) -> Range | None:
    (x,) = operands
    if x is None:
        return None
    return Range(0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), max(abs(x.low), abs(x.high)))


def _negated(_op: ir.Operation, operands: Operands) -> Range | None:
    x, *zero_points = operands
    return (
        Range(-x.high, -x.low)
        if x is not None and all(zero_point == Range(0, 0) for zero_point in zero_points)
        else None
    )


def _conjunction(op: ir.Operation, operands: Operands) -> Range | None:
    bounds = [operand.high for operand in operands if operand is not None and operand.low >= 0]
    return Range(0, min(bounds)) if bounds else _bits_of_both(op, operands)


def _bits_of_both(_op: ir.Operation, operands: Operands) -> Range | None:
    """Return the range of integers of as many bits as the wider operand needs."""
    union = join(operands)
    if union is None:
        return None
    bits = max(int(union.high).bit_length(), int(-union.low - 1).bit_length() if union.low < 0 else 0)
    return Range(-(2**bits) if union.low < 0 else 0, 2**bits - 1)


def _inverted(_op: ir.Operation, operands: Operands) -> Range | None:
    (x,) = operands
    return None if x is None else Range(-x.high - 1, -x.low - 1)


def _shifted(of: Callable[[int, int], int], *, negative: bool = True) -> RangeRule:
    def rule(op: ir.Operation, operands: Operands) -> Range | None:
        x, by = operands
        if "round" in op.attributes and ir.BoolAttr(op.attributes["round"]).value:
            return None
        if x is None or by is None or not 0 <= by.low <= by.high < 64 or (x.low < 0 and not negative):
            return None
        return _corners(lambda a, b: of(int(a), int(b)))(op, operands)

    return rule


def _size_along_axis(op: ir.Operation) -> int | None:
    axis = ir.IntegerAttr(op.attributes["axis"]).value
    type_ = ir.RankedTensorType(op.operands[0].type)
    return None if type_.is_dynamic_dim(axis) else type_.get_dim_size(axis)


def _sum(op: ir.Operation, operands: Operands) -> Range | None:
    if element_bits(op.results[0]) is None:
        return None
    size, (x,) = _size_along_axis(op), operands
    # Includes zero: partial sums must not overflow either.
    return None if x is None or size is None else Range(min(0, size * x.low), max(0, size * x.high))


def _position(op: ir.Operation, _given: Operands) -> Range | None:
    size = _size_along_axis(op)
    return None if size is None else Range(0, max(size - 1, 0))


def _clamp(op: ir.Operation, operands: Operands) -> Range | None:
    attribute = ir.FloatAttr if element_bits(op.results[0]) is None else ir.IntegerAttr
    bounds = Range(*(attribute(op.attributes[name]).value for name in ("min_val", "max_val")))
    if operands[0] is None:
        return bounds if math.isfinite(bounds.low) and math.isfinite(bounds.high) else None
    return operands[0].clipped(bounds)


def _cast(op: ir.Operation, operands: Operands) -> Range | None:
    (x,) = operands
    if x is None or not (math.isfinite(x.low) and math.isfinite(x.high)):
        return None
    if element_bits(op.operands[0]) is None and element_bits(op.results[0]) is not None:
        return Range(math.floor(x.low), math.ceil(x.high))
    if element_bits(op.results[0]) is None:
        return _rounded(x)
    return Range(0, 1) if element_bits(op.results[0]) == 1 else x


def _rounded(x: Range) -> Range:
    """Return ``x`` widened by the rounding error of any float type."""
    return Range(float(x.low) - abs(x.low) / 64, float(x.high) + abs(x.high) / 64)


def _of_floats(rule: RangeRule) -> RangeRule:
    """Return ``rule``, widened by the rounding error where its results are floats."""

    def rounding(op: ir.Operation, operands: Operands) -> Range | None:
        exact = rule(op, operands)
        return _rounded(exact) if exact is not None and element_bits(op.results[0]) is None else exact

    return rounding


_MOVES = ("identity", "reshape", "transpose", "tile", "slice", "reverse", "reduce_max", "reduce_min", "gather")
_BOOLEAN_OPS = ("equal", "logical_and", "logical_or", "logical_xor", "logical_not")

RULES: Mapping[str, RangeRule] = {
    "tosa.const": _constant,
    **{f"tosa.{name}": _first_operand for name in _MOVES},
    **{f"tosa.{name}": _boolean for name in (*_BOOLEAN_OPS, "reduce_all", "reduce_any")},
    "tosa.greater": _greater,
    "tosa.greater_equal": _greater,
    "tosa.concat": lambda _op, operands: join(operands),
    "tosa.pad": _union(0, 2),
    "tosa.select": _union(1, 2),
    "tosa.scatter": _union(0, 2),
    "tosa.cast": _cast,
    "tosa.add": _of_floats(_corners(lambda x, y: x + y)),
    "tosa.sub": _of_floats(_corners(lambda x, y: x - y)),
    "tosa.mul": _of_floats(_product),
    "tosa.maximum": _corners(max),
    "tosa.minimum": _corners(min),
    "tosa.intdiv": _quotient,
    "tosa.abs": _absolute,
    "tosa.negate": _negated,
    "tosa.clamp": _clamp,
    "tosa.bitwise_and": _conjunction,
    "tosa.bitwise_or": _bits_of_both,
    "tosa.bitwise_xor": _bits_of_both,
    "tosa.bitwise_not": _inverted,
    "tosa.arithmetic_right_shift": _shifted(lambda x, by: x >> by),
    "tosa.logical_right_shift": _shifted(lambda x, by: x >> by, negative=False),
    "tosa.logical_left_shift": _shifted(lambda x, by: x << by),
    "tosa.reduce_sum": _sum,
    "tosa.argmax": _position,
    "tosa.floor": lambda _op, operands: operands[0] and Range(math.floor(operands[0].low), math.ceil(operands[0].high)),
    "tosa.ceil": lambda _op, operands: operands[0] and Range(math.floor(operands[0].low), math.ceil(operands[0].high)),
    "tosa.tanh": lambda _op, operands: operands[0] and Range(-1, 1),
    "tosa.sigmoid": lambda _op, operands: operands[0] and Range(0, 1),
}
"""The rules by operation. The results of any other operation have no range."""
