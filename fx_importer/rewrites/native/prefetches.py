"""Prefetches of memory that is read after a loop nest, spread over its iterations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.loops import LoopEmitter

_FEWEST_ITERATIONS = 8
"""Of the innermost loop between prefetches."""
_Body = Callable[[LoopEmitter, Sequence[ir.Value], Sequence[ir.Value]], Sequence[ir.Value]]
Nest = Callable[[Sequence[Size], Sequence[ir.Value], _Body, Mapping[str, ir.Attribute]], list[ir.Value]]
"""Emits a loop nest, as `LoopEmitter.nest` does."""


@dataclass(frozen=True)
class PrefetchingNest:
    """Emits a loop nest that prefetches a part of what the same iterations read later.

    Prefetches that are emitted at once wait for each other, and keep the loop waiting.
    """

    emit: LoopEmitter
    at: Sequence[ir.Value]
    """The iteration of the loops around, which share the prefetches."""
    around: Sequence[Size]
    """The sizes of these loops."""
    prefetch: Callable[[LoopEmitter, Sequence[ir.Value]], None]
    """Emits the prefetches for an iteration of the nest."""

    def __call__(
        self,
        sizes: Sequence[Size],
        state: Sequence[ir.Value],
        body: _Body,
        innermost: Mapping[str, ir.Attribute] = MappingProxyType({}),
    ) -> list[ir.Value]:
        counts = _known(sizes)
        rows, nests = math.prod(counts), math.prod(_known(self.around))
        steps = counts[0] if len(counts) > 1 else _steps(rows, -(-rows // nests))
        each = -(-rows // (nests * steps))
        inner = counts[1:] if len(counts) > 1 else [rows // steps]

        def outer(emit: LoopEmitter, step: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            first = emit.index_op("muli", _number_of(emit, [*self.at, step], [*self.around, steps]), each)
            for number in range(each):
                row = emit.index_op("minui", emit.index_op("addi", first, number), rows - 1)
                self.prefetch(emit, index_of(emit, row, counts))

            def inside(deep: LoopEmitter, at: Sequence[ir.Value], sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
                if len(counts) > 1:
                    return body(deep, [step, *at], sums)
                return body(deep, [deep.index_op("addi", deep.index_op("muli", step, inner[0]), at[0])], sums)

            return emit.nest(inner, carried, inside, innermost)

        return self.emit.loop(0, steps, 1, state, outer)


def _steps(rows: int, fewest: int) -> int:
    """Return into how many parts of the same size ``rows`` are divided, so that ``fewest`` are possible."""
    divisors = (number for number in range(fewest, rows // _FEWEST_ITERATIONS + 1) if rows % number == 0)
    return next(divisors, 1)


def next_index(emit: LoopEmitter, at: Sequence[ir.Value], counts: Sequence[Size]) -> list[ir.Value]:
    """Emit the counters of the iteration after ``at`` of nested loops of ``counts``; the last one's own."""
    after = emit.index_op("addi", _number_of(emit, at, counts), 1)
    return index_of(emit, emit.index_op("minui", after, math.prod(_known(counts)) - 1), counts)


def index_of(emit: LoopEmitter, number: ir.Value, counts: Sequence[Size]) -> list[ir.Value]:
    """Emit the counters of the iteration ``number`` of nested loops of ``counts``."""
    counters: list[ir.Value] = []
    for count in reversed(_known(counts)[1:]):
        counters.insert(0, emit.index_op("remui", number, count))
        number = emit.index_op("divui", number, count)
    return [number, *counters]


def _number_of(emit: LoopEmitter, at: Sequence[ir.Value], counts: Sequence[Size]) -> ir.Value:
    """Emit the number of the iteration ``at`` of nested loops of ``counts``."""
    number, *others = at
    for counter, count in zip(others, counts[1:], strict=True):
        number = emit.index_op("addi", emit.index_op("muli", number, count), counter)
    return number


def _known(counts: Sequence[Size]) -> list[int]:
    return [count for count in counts if isinstance(count, int)]
