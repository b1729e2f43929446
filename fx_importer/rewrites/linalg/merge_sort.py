"""A stable merge sort in scf loops, in O(n log n)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.loops import LoopEmitter

Order = Callable[[LoopEmitter, Sequence[tuple[ir.Value, ir.Value]]], ir.Value]
"""Emits whether the first of two elements may stay first, given a pair of elements per sorted tensor."""


def sort(tensors: Sequence[ir.Value], axis: int, order: Order, emit: LoopEmitter) -> Sequence[ir.Value]:
    """Sort ``tensors`` together along ``axis``; return the results.

    Each row is sorted in two scratch rows, between which the passes alternate.
    """
    sizes = emit.sizes(tensors[0])
    length = sizes[axis]
    row_sizes: list[Size] = [size if each == axis else 1 for each, size in enumerate(sizes)]
    others = [each for each in range(len(sizes)) if each != axis]

    def sort_one_row(emit: LoopEmitter, counters: Sequence[ir.Value], state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        unsorted, scratch = state[: len(tensors)], state[len(tensors) :]
        positions = dict(zip(others, counters, strict=True))
        offsets = [positions.get(each, 0) for each in range(len(sizes))]
        rows = [emit.extract_slice(each, offsets, row_sizes, [axis]) for each in unsorted]
        filled = [emit.insert_slice(row, each, [0, 0], [1, length]) for row, each in zip(rows, scratch, strict=True)]
        side, *ordered = _sort_row(filled, length, order, emit)
        rows = [emit.extract_slice(each, [side, 0], [1, length], [1]) for each in ordered]
        done = [emit.insert_slice(row, each, offsets, row_sizes) for row, each in zip(rows, unsorted, strict=True)]
        return [*done, *ordered]

    scratch = [emit.empty([2, length], ir.RankedTensorType(tensor.type).element_type) for tensor in tensors]
    return emit.nest([sizes[each] for each in others], [*tensors, *scratch], sort_one_row)[: len(tensors)]


def _sort_row(scratch: Sequence[ir.Value], length: Size, order: Order, emit: LoopEmitter) -> list[ir.Value]:
    """Merge runs of 1, 2, 4, … elements until one is as long as the row, which is row 0 of each of ``scratch``.

    Each pass reads one row and writes the other. Return the number of the row written last, then the tensors.
    """
    types = [*(each.type for each in scratch), *[ir.IndexType.get(emit.context)] * 2]
    passes = emit.op("scf.while", types, [*scratch, emit.index(1), emit.index(0)], regions=2)
    condition = emit.add_block(passes.regions[0], types)
    inside = emit.inside(condition)
    inside.op("scf.condition", [], [inside.index_less(condition.arguments[-2], length), *condition.arguments])
    body = emit.add_block(passes.regions[1], types)
    inside = emit.inside(body)
    *before, run, side = body.arguments
    twice, other = inside.index_op("addi", run, run), inside.index_op("subi", 1, side)

    def merge(emit: LoopEmitter, low: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        middle = emit.index_op("minsi", emit.index_op("addi", low, run), length)
        high = emit.index_op("minsi", emit.index_op("addi", low, twice), length)
        return _merge(state, (side, other), (low, middle, high), order, emit)

    after = inside.loop(0, length, twice, before, merge)
    inside.op("scf.yield", [], [*after, twice, other])
    *ordered, _, side = passes.results
    return [side, *ordered]


def _merge(
    scratch: Sequence[ir.Value],
    sides: tuple[ir.Value, ir.Value],
    bounds: tuple[ir.Value, ir.Value, ir.Value],
    order: Order,
    emit: LoopEmitter,
) -> list[ir.Value]:
    """Merge two runs of one row, low to middle and middle to high, into the same range of the other row."""
    source, destination = sides
    low, middle, high = bounds
    last = emit.index_op("subi", high, 1)

    def merge_one(emit: LoopEmitter, target: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        *scratch, left, right = state
        # An element read beyond the end of a run is not used.
        at_left, at_right = (emit.index_op("minsi", each, last) for each in (left, right))
        pairs = [(emit.extract(each, source, at_left), emit.extract(each, source, at_right)) for each in scratch]
        ordered = order(emit, pairs)
        ordered = emit.value("arith.ori", "i1", ordered, emit.index_less(last, right))
        first = emit.value("arith.andi", "i1", ordered, emit.index_less(left, middle))
        merged = [
            emit.insert(emit.select_value(first, *pair), each, destination, target)
            for pair, each in zip(pairs, scratch, strict=True)
        ]
        one = emit.index(1)
        next_left = emit.select_value(first, emit.index_op("addi", left, one), left)
        next_right = emit.select_value(first, right, emit.index_op("addi", right, one))
        return [*merged, next_left, next_right]

    return emit.loop(low, high, 1, [*scratch, low, middle], merge_one)[: len(scratch)]
