"""Between which numbers the values of a TOSA module lie: an interval analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import producer
from fx_importer.rewrites.tosa.intervals import INT32, Range, element_bits, integers, join, whole
from fx_importer.rewrites.tosa.range_rules import RULES

_TURNS = 3
"""How often a loop's body is gone through before what still grows is taken to grow without end."""


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


def is_bound(value: ir.Value) -> bool:
    """Whether ``value`` is a constant that others are only compared with for the larger or the smaller of the two.

    Where they have fewer bits, so may it have: the nearest number that there is will do.
    """
    return producer(value) == "tosa.const" and all(
        use.owner.name in ("tosa.maximum", "tosa.minimum") for use in value.uses
    )
