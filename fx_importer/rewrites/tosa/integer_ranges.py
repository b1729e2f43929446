"""Interval analysis of the values of a TOSA module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, terminator
from fx_importer.rewrites.tosa.intervals import INT32, Range, element_bits, integers, join, whole
from fx_importer.rewrites.tosa.range_rules import RULES

_ITERATIONS_BEFORE_WIDENING = 3
"""Iterations of the analysis of a loop before ranges that still grow are widened to those of their types."""


class Ranges:
    """The range of every value of ``module``.

    It is None where it is unknown: for a float that may be infinite, or a value that is not a tensor. Any float
    may be NaN too, which PyTorch casts to no defined integer.

    Args:
        module: all its functions are analyzed.
        narrow: whether i64 values are to fit into `INT32`. The arguments of functions are assumed to fit; a value that
            may not is recorded in ``outside``, and analyzed further as if it did.
    """

    def __init__(self, module: ir.Operation, *, narrow: bool):
        self._known: dict[ir.Value, Range | None] = {}
        self._narrow = narrow
        self.outside: dict[ir.Value, Range] = {}
        for function in functions_of(module):
            block = function.regions[0].blocks[0]
            for argument in block.arguments:
                self._known[argument] = self._possible(argument)
            self._analyze(block)

    def __getitem__(self, value: ir.Value) -> Range | None:
        return self._known.get(value, whole(value))

    def _possible(self, value: ir.Value) -> Range | None:
        return INT32 if self._narrow and element_bits(value) == 64 else whole(value)

    def _analyze(self, block: ir.Block) -> None:
        for op in block.operations:
            self._visit(op.operation)

    def _visit(self, op: ir.Operation) -> None:
        if op.name == "tosa.while_loop":
            self._loop(op)
        elif op.name == "tosa.cond_if":
            self._branch(op)
        elif len(op.results) == 1:
            self._set(op.results[0], self._of(op))

    def _set(self, value: ir.Value, values: Range | None) -> None:
        possible = whole(value)
        if possible is not None:  # a value beyond its type wraps around
            values = values if values is not None and values.within(possible) else possible
            self.outside.pop(value, None)
            limit = integers(min(element_bits(value) or 0, 32))
            # Not a bound: the result of the maximum or minimum with it is what has to fit.
            # i48 has the sums of products of i16, and no narrower form.
            narrow = self._narrow and element_bits(value) != 48
            if narrow and not values.within(limit) and not is_bound(value):
                self.outside[value] = values
                values = values.clipped(limit)
        elif values is not None and not (math.isfinite(values.low) and math.isfinite(values.high)):
            values = None
        self._known[value] = values

    def _of(self, op: ir.Operation) -> Range | None:
        rule = RULES.get(op.name)
        if rule is None:
            return None
        range_ = rule(op, [self[operand] for operand in op.operands])
        rest = self._remainder(op) if op.name == "tosa.sub" else None
        return range_.clipped(rest) if range_ is not None and rest is not None else range_

    def _remainder(self, op: ir.Operation) -> Range | None:
        """Return the range of integers ``a - a / b * b``: smaller in magnitude than ``b``, with the sign of ``a``."""
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
        operands = list(op.operands)[1:]
        ends: list[list[Range | None]] = []
        for region in op.regions:
            block = region.blocks[0]
            for argument, value in zip(block.arguments, operands, strict=False):
                self._known[argument] = self[value]
            self._analyze(block)
            ends.append([self[operand] for operand in terminator(block).operands])
        for result, one, other in zip(op.results, *ends, strict=True):
            self._set(result, join((one, other)))

    def _loop(self, op: ir.Operation) -> None:
        """Iterate to a fixed point, with widening, and narrow the result in two more iterations."""
        condition, body = (region.blocks[0] for region in op.regions)
        first = [self[operand] for operand in op.operands]
        now = first
        for iteration in range(_ITERATIONS_BEFORE_WIDENING + len(first) + 2):
            after = [join(pair) for pair in zip(now, self._iteration(condition, body, first, now), strict=True)]
            if after == now:
                break
            if iteration >= _ITERATIONS_BEFORE_WIDENING:
                after = [self._widened(*triple) for triple in zip(op.results, now, after, strict=True)]
            now = after
        else:
            now = [self._possible(result) for result in op.results]
        for _ in range(2):
            now = [join(pair) for pair in zip(first, self._iteration(condition, body, first, now), strict=True)]
        self._iteration(condition, body, first, now)  # records the final ranges inside
        for result, range_ in zip(op.results, now, strict=True):
            self._set(result, range_)

    def _iteration(
        self, condition: ir.Block, body: ir.Block, first: Sequence[Range | None], now: Sequence[Range | None]
    ) -> list[Range | None]:
        for argument, range_ in zip(condition.arguments, now, strict=True):
            self._set(argument, range_)
        self._analyze(condition)
        holds, yielded = terminator(condition).operands[0], list(terminator(body).operands)
        bounds = dict(self._bounds(holds))
        # A condition that is an iter_arg was computed at the end of the iteration before; the first one has none.
        carried = [number for number, argument in enumerate(condition.arguments) if argument == holds]
        before = dict(self._bounds(yielded[carried[0]])) if carried else {}
        for number, (argument, range_) in enumerate(zip(body.arguments, now, strict=True)):
            if range_ is not None and (bound := bounds.get(condition.arguments[number])) is not None:
                range_ = range_.clipped(bound)
            if range_ is not None and (bound := before.get(yielded[number])) is not None:
                range_ = join((first[number], range_.clipped(bound)))
            self._set(argument, range_)
        self._analyze(body)
        return [self[operand] for operand in terminator(body).operands]

    def _widened(self, value: ir.Value, before: Range | None, after: Range | None) -> Range | None:
        all_ = self._possible(value)
        if before is None or after is None or all_ is None:
            return all_
        return Range(
            before.low if before.low == after.low else all_.low, before.high if before.high == after.high else all_.high
        )

    def _bounds(self, holds: ir.Value) -> Iterable[tuple[ir.Value, Range]]:
        """Yield the bounds of the arguments of a condition's block that follow if ``holds`` is true."""
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
    ops = [op.operation for op in module.regions[0].blocks[0].operations]
    return [op for op in ops if op.name == "func.func" and op.regions[0].blocks]


def _argument(value: ir.Value) -> ir.Value:
    """Return the source of ``value`` before any reshapes."""
    while producer(value) in ("tosa.reshape", "tosa.identity"):
        value = value.owner.operands[0]
    return value


def is_bound(value: ir.Value) -> bool:
    """Whether ``value`` is a constant whose uses are all maxima and minima.

    It may be clamped to the narrower type of the other operand.
    """
    return producer(value) == "tosa.const" and all(
        use.owner.name in ("tosa.maximum", "tosa.minimum") for use in value.uses
    )
