"""Between which numbers the values of a TOSA module lie: an interval analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fx_importer.bindings import ir
from fx_importer.resources import is_resource, resource_bytes
from fx_importer.rewrites.emitter import producer

_LARGEST_FLOATS = 1 << 16
"""Constants of more floats than this are not looked at."""
_TURNS = 3
"""How often a loop's body is gone through before what still grows is taken to grow without end."""


@dataclass(frozen=True)
class Range:
    """All numbers from ``low`` to ``high``, both included. Not a number is in no range."""

    low: float
    high: float

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    def within(self, other: Range) -> bool:
        return other.low <= self.low and self.high <= other.high

    def clipped(self, other: Range) -> Range:
        return Range(min(max(self.low, other.low), other.high), max(min(self.high, other.high), other.low))


def integers(bits: int) -> Range:
    """Return the range of signed integers; one bit is 0 or 1."""
    return Range(0, 1) if bits == 1 else Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


INT32 = integers(32)


def element_bits(value: ir.Value) -> int | None:
    """Return the width of a tensor of integers; None for what is none."""
    if not isinstance(value.type, ir.RankedTensorType):
        return None
    element = ir.RankedTensorType(value.type).element_type
    return ir.IntegerType(element).width if isinstance(element, ir.IntegerType) else None


def whole(value: ir.Value) -> Range | None:
    """Return the range of all that the type of ``value`` can hold; None for what is not a number, or may be none."""
    bits = element_bits(value)
    return None if bits is None else integers(bits)


def constant_array(attribute: ir.Attribute) -> np.ndarray | None:
    """Return the elements of a constant of integers of 64 bits, or of float32, if they can be read."""
    type_ = ir.RankedTensorType(attribute.type)
    dtype = {"i64": np.int64, "i32": np.int32, "f32": np.float32, "i1": np.bool_, "i8": np.int8, "i16": np.int16}.get(
        str(type_.element_type)
    )
    if dtype is None:
        return None
    if not is_resource(attribute):
        return np.array(attribute).reshape(type_.shape)
    data = resource_bytes(attribute, math.prod(type_.shape) * np.dtype(dtype).itemsize)
    return None if data is None else np.frombuffer(data, dtype).reshape(type_.shape)


class Ranges:
    """The range of every value of ``module``.

    What no range is known of has None: a float, which may be infinite or not a number, or what is not a tensor.

    Args:
        module: all its functions are gone through.
        narrow: whether integers of 64 bits are to lie in `INT32`. The arguments of functions are taken to; what may not
            is noted in ``outside``, and what is computed from it, as if it did.
    """

    def __init__(self, module: ir.Operation, *, narrow: bool):
        self._known: dict[ir.Value, Range | None] = {}
        self._narrow = narrow
        self.outside: dict[ir.Value, Range] = {}
        for function in functions_of(module):
            block = function.regions[0].blocks[0]
            for each in block.arguments:
                self._known[each] = self._possible(each)
            self._go_through(block)

    def __getitem__(self, value: ir.Value) -> Range | None:
        return self._known.get(value, whole(value))

    def _possible(self, value: ir.Value) -> Range | None:
        return INT32 if self._narrow and element_bits(value) == 64 else whole(value)

    def _go_through(self, block: ir.Block) -> None:
        for op in block.operations:
            self._visit(op.operation)

    def _visit(self, op: ir.Operation) -> None:
        if op.name == "tosa.while_loop":
            self._loop(op)
        elif op.name == "tosa.cond_if":
            self._branch(op)
        elif len(op.results) == 1:
            self._set(op.results[0], self._of(op))

    def _set(self, value: ir.Value, found: Range | None) -> None:
        possible = whole(value)
        if possible is not None:  # what leaves the type comes back at its other end
            found = found if found is not None and found.within(possible) else possible
            self.outside.pop(value, None)
            if self._narrow and not found.within(limit := integers(min(element_bits(value) or 0, 32))):
                if not is_bound(value):
                    self.outside[value] = found
                found = found.clipped(limit)
        elif found is not None and not (math.isfinite(found.low) and math.isfinite(found.high)):
            found = None
        self._known[value] = found

    def _of(self, op: ir.Operation) -> Range | None:
        if op.name == "tosa.const":
            return _constant(op)
        rule = RULES.get(op.name)
        if rule is None:
            return None
        found = rule(op, [self[each] for each in op.operands])
        rest = self._rest(op) if op.name == "tosa.sub" else None
        return found.clipped(rest) if found is not None and rest is not None else found

    def _rest(self, op: ir.Operation) -> Range | None:
        """Return the range of integers ``a - a / b * b``: less than ``b``, and of the sign of ``a``."""
        a, product = op.operands
        if producer(product) != "tosa.mul" or element_bits(a) is None:
            return None
        quotient, b = list(product.owner.operands)[:2]
        of, by = self[a], self[b]
        if producer(quotient) != "tosa.intdiv" or list(quotient.owner.operands) != [a, b] or of is None or by is None:
            return None
        largest = max(abs(by.low), abs(by.high)) - 1
        return Range(-largest if of.low < 0 else 0, largest if of.high > 0 else 0)

    def _branch(self, op: ir.Operation) -> None:
        given = list(op.operands)[1:]
        ends: list[list[Range | None]] = []
        for region in op.regions:
            block = region.blocks[0]
            for argument, value in zip(block.arguments, given, strict=False):
                self._known[argument] = self[value]
            self._go_through(block)
            ends.append([self[each] for each in terminator(block).operands])
        for result, one, other in zip(op.results, *ends, strict=True):
            self._set(result, join((one, other)))

    def _loop(self, op: ir.Operation) -> None:
        """A range that the body does not leave, and then one turn less of what the widening gave away."""
        condition, body = (region.blocks[0] for region in op.regions)
        first = [self[each] for each in op.operands]
        now = first
        for turn in range(_TURNS + len(first) + 2):
            after = [join(pair) for pair in zip(now, self._turn(condition, body, first, now), strict=True)]
            if after == now:
                break
            if turn >= _TURNS:
                after = [self._widened(*each) for each in zip(op.results, now, after, strict=True)]
            now = after
        else:
            now = [self._possible(each) for each in op.results]
        for _ in range(2):
            now = [join(pair) for pair in zip(first, self._turn(condition, body, first, now), strict=True)]
        self._turn(condition, body, first, now)  # the ranges inside are those of the end
        for result, found in zip(op.results, now, strict=True):
            self._set(result, found)

    def _turn(
        self, condition: ir.Block, body: ir.Block, first: Sequence[Range | None], now: Sequence[Range | None]
    ) -> list[Range | None]:
        for argument, found in zip(condition.arguments, now, strict=True):
            self._set(argument, found)
        self._go_through(condition)
        holds, yielded = terminator(condition).operands[0], list(terminator(body).operands)
        bounds = dict(self._bounds(holds))
        # Where the truth is carried along, it was found at the end of the turn before; the first turn has none before.
        carried = [number for number, argument in enumerate(condition.arguments) if argument == holds]
        before = dict(self._bounds(yielded[carried[0]])) if carried else {}
        for number, (argument, found) in enumerate(zip(body.arguments, now, strict=True)):
            if found is not None and (bound := bounds.get(condition.arguments[number])) is not None:
                found = found.clipped(bound)
            if found is not None and (bound := before.get(yielded[number])) is not None:
                found = join((first[number], found.clipped(bound)))
            self._set(argument, found)
        self._go_through(body)
        return [self[each] for each in terminator(body).operands]

    def _widened(self, value: ir.Value, before: Range | None, after: Range | None) -> Range | None:
        all_ = self._possible(value)
        if before is None or after is None or all_ is None:
            return all_
        return Range(
            before.low if before.low == after.low else all_.low, before.high if before.high == after.high else all_.high
        )

    def _bounds(self, holds: ir.Value) -> Iterable[tuple[ir.Value, Range]]:
        """Yield what follows for the arguments of a condition's block from ``holds`` being true."""
        name = producer(holds)
        if name in ("tosa.logical_and", "tosa.reshape", "tosa.identity"):
            for operand in holds.owner.operands:
                if element_bits(operand) == 1:
                    yield from self._bounds(operand)
        elif name in ("tosa.greater", "tosa.greater_equal"):
            large, small = holds.owner.operands
            step = 1 if name == "tosa.greater" else 0
            if element_bits(large) is None:
                return
            if (bound := self[large]) is not None:
                yield _argument(small), Range(-math.inf, bound.high - step)
            if (bound := self[small]) is not None:
                yield _argument(large), Range(bound.low + step, math.inf)


def functions_of(module: ir.Operation) -> list[ir.Operation]:
    """Return the functions of ``module`` that have a body."""
    found = [op.operation for op in module.regions[0].blocks[0].operations]
    return [op for op in found if op.name == "func.func" and op.regions[0].blocks]


def _argument(value: ir.Value) -> ir.Value:
    """Return what ``value`` is a copy of in another shape."""
    while producer(value) in ("tosa.reshape", "tosa.identity"):
        value = value.owner.operands[0]
    return value


def terminator(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def join(ranges: Iterable[Range | None]) -> Range | None:
    """Return what holds them all; None if of one nothing is known."""
    total: Range | None = None
    for each in ranges:
        if each is None:
            return None
        total = each if total is None else total | each
    return total


def is_bound(value: ir.Value) -> bool:
    """Whether ``value`` is a constant that others are only compared with for the larger or the smaller of the two.

    Where they have fewer bits, so may it have: the nearest number that there is will do.
    """
    return producer(value) == "tosa.const" and all(
        use.owner.name in ("tosa.maximum", "tosa.minimum") for use in value.uses
    )


def _constant(op: ir.Operation) -> Range | None:
    attribute = op.attributes["values"]
    size = math.prod(ir.RankedTensorType(attribute.type).shape)
    integer = element_bits(op.results[0])
    if integer is None and size > _LARGEST_FLOATS:
        return None
    array = constant_array(attribute)
    if array is None or not np.isfinite(array).all():
        return None
    if not array.size:
        return Range(0, 0)
    low, high = array.min(), array.max()
    return Range(low.item(), high.item()) if integer else Range(float(low), float(high))


# --- what each operation makes of the ranges of its operands --------------------------------------------------------

Operands = Sequence[Range | None]
Rule = Callable[[ir.Operation, Operands], Range | None]


def _first(_op: ir.Operation, given: Operands) -> Range | None:
    return given[0]


def _union(*positions: int) -> Rule:
    return lambda _op, given: join(given[each] for each in positions)


def _truth(_op: ir.Operation, _given: Operands) -> Range:
    return Range(0, 1)


def _above(op: ir.Operation, given: Operands) -> Range:
    """One where it is known to hold, and zero where it is known not to."""
    a, b = given
    if a is None or b is None or element_bits(op.operands[0]) is None:
        return Range(0, 1)
    if op.name == "tosa.greater_equal":
        a = Range(a.low + 1, a.high + 1)
    return Range(int(a.low > b.high), int(a.high > b.low))


def _corners(of: Callable[[float, float], float]) -> Rule:
    """Of an operation that rises or falls all along in each operand."""

    def rule(_op: ir.Operation, given: Operands) -> Range | None:
        a, b = given[:2]
        if a is None or b is None:
            return None
        try:
            found = [of(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        except (OverflowError, ZeroDivisionError, ValueError):
            return None
        return Range(min(found), max(found))

    return rule


def _product(op: ir.Operation, given: Operands) -> Range | None:
    shift = given[2]  # a right shift of the product, of integers of 32 bits
    return _corners(lambda x, y: x * y)(op, given) if shift == Range(0, 0) else None


def _quotient(op: ir.Operation, given: Operands) -> Range | None:
    divisor = given[1]
    if divisor is None or divisor.low <= 0 <= divisor.high:
        return None if given[0] is None else _magnitude(given[0])  # by 1 or -1 at the least; by 0 it has no result
    return _corners(lambda x, y: int(abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1))(op, given)


def _magnitude(found: Range) -> Range:
    largest = max(abs(found.low), abs(found.high))
    return Range(-largest, largest)


def _absolute(_op: ir.Operation, given: Operands) -> Range | None:
    (x,) = given
    if x is None:
        return None
    return Range(0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), max(abs(x.low), abs(x.high)))


def _negated(_op: ir.Operation, given: Operands) -> Range | None:
    x, *zero_points = given
    return Range(-x.high, -x.low) if x is not None and all(each == Range(0, 0) for each in zero_points) else None


def _conjunction(op: ir.Operation, given: Operands) -> Range | None:
    bounds = [each.high for each in given if each is not None and each.low >= 0]
    return Range(0, min(bounds)) if bounds else _bits_of_both(op, given)


def _bits_of_both(_op: ir.Operation, given: Operands) -> Range | None:
    """As many bits as the operand with more of them has."""
    found = join(given)
    if found is None:
        return None
    bits = max(int(found.high).bit_length(), int(-found.low - 1).bit_length() if found.low < 0 else 0)
    return Range(-(2**bits) if found.low < 0 else 0, 2**bits - 1)


def _inverted(_op: ir.Operation, given: Operands) -> Range | None:
    (x,) = given
    return None if x is None else Range(-x.high - 1, -x.low - 1)


def _shifted(of: Callable[[int, int], int], *, negative: bool = True) -> Rule:
    def rule(op: ir.Operation, given: Operands) -> Range | None:
        x, by = given
        if "round" in op.attributes and ir.BoolAttr(op.attributes["round"]).value:
            return None
        if x is None or by is None or not 0 <= by.low <= by.high < 64 or (x.low < 0 and not negative):
            return None
        return _corners(lambda a, b: of(int(a), int(b)))(op, given)

    return rule


def _size_along_axis(op: ir.Operation) -> int | None:
    axis = ir.IntegerAttr(op.attributes["axis"]).value
    type_ = ir.RankedTensorType(op.operands[0].type)
    return None if type_.is_dynamic_dim(axis) else type_.get_dim_size(axis)


def _sum(op: ir.Operation, given: Operands) -> Range | None:
    if element_bits(op.results[0]) is None:
        return None
    size, (x,) = _size_along_axis(op), given
    # Zero too: the sum of some of them may not leave the type either.
    return None if x is None or size is None else Range(min(0, size * x.low), max(0, size * x.high))


def _position(op: ir.Operation, _given: Operands) -> Range | None:
    size = _size_along_axis(op)
    return None if size is None else Range(0, max(size - 1, 0))


def _clamp(op: ir.Operation, given: Operands) -> Range | None:
    if element_bits(op.results[0]) is None:
        low, high = (ir.FloatAttr(op.attributes[name]).value for name in ("min_val", "max_val"))
    else:
        low, high = (ir.IntegerAttr(op.attributes[name]).value for name in ("min_val", "max_val"))
    return None if given[0] is None else given[0].clipped(Range(low, high))


def _cast(op: ir.Operation, given: Operands) -> Range | None:
    (x,) = given
    if x is None or not (math.isfinite(x.low) and math.isfinite(x.high)):
        return None
    if element_bits(op.operands[0]) is None and element_bits(op.results[0]) is not None:
        return Range(math.floor(x.low), math.ceil(x.high))
    if element_bits(op.results[0]) is None:
        return _rounded(x)
    return Range(0, 1) if element_bits(op.results[0]) == 1 else x


def _rounded(x: Range) -> Range:
    """Return what ``x`` is when it is rounded to any float type."""
    return Range(float(x.low) - abs(x.low) / 64, float(x.high) + abs(x.high) / 64)


def _of_floats(rule: Rule) -> Rule:
    """Return ``rule``, with room for rounding where its results are floats."""

    def rounding(op: ir.Operation, given: Operands) -> Range | None:
        found = rule(op, given)
        return _rounded(found) if found is not None and element_bits(op.results[0]) is None else found

    return rounding


_MOVES = ("identity", "reshape", "transpose", "tile", "slice", "reverse", "reduce_max", "reduce_min", "gather")
_TRUTHS = ("equal", "logical_and", "logical_or", "logical_xor", "logical_not")

RULES: Mapping[str, Rule] = {
    **{f"tosa.{name}": _first for name in _MOVES},
    **{f"tosa.{name}": _truth for name in (*_TRUTHS, "reduce_all", "reduce_any")},
    "tosa.greater": _above,
    "tosa.greater_equal": _above,
    "tosa.concat": lambda _op, given: join(given),
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
    "tosa.floor": lambda _op, given: given[0] and Range(math.floor(given[0].low), math.ceil(given[0].high)),
    "tosa.ceil": lambda _op, given: given[0] and Range(math.floor(given[0].low), math.ceil(given[0].high)),
    "tosa.tanh": lambda _op, given: given[0] and Range(-1, 1),
    "tosa.sigmoid": lambda _op, given: given[0] and Range(0, 1),
}
"""The rule of each operation that something is known of."""
