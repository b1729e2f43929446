"""Sorts in scf loops: a stable merge sort, in O(n log n), and selection of the first ``k`` elements by insertion."""

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
    row_sizes: list[Size] = [size if dim == axis else 1 for dim, size in enumerate(sizes)]
    others = [dim for dim in range(len(sizes)) if dim != axis]

    def sort_one_row(emit: LoopEmitter, counters: Sequence[ir.Value], state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        unsorted, scratch = state[: len(tensors)], state[len(tensors) :]
        positions = dict(zip(others, counters, strict=True))
        offsets = [positions.get(dim, 0) for dim in range(len(sizes))]
        rows = [emit.extract_slice(tensor, offsets, row_sizes, [axis]) for tensor in unsorted]
        filled = [
            emit.insert_slice(row, tensor, [0, 0], [1, length]) for row, tensor in zip(rows, scratch, strict=True)
        ]
        side, *ordered = _sort_row(filled, length, order, emit)
        rows = [emit.extract_slice(tensor, [side, 0], [1, length], [1]) for tensor in ordered]
        done = [emit.insert_slice(row, tensor, offsets, row_sizes) for row, tensor in zip(rows, unsorted, strict=True)]
        return [*done, *ordered]

    scratch = [emit.empty([2, length], ir.RankedTensorType(tensor.type).element_type) for tensor in tensors]
    return emit.nest([sizes[other] for other in others], [*tensors, *scratch], sort_one_row)[: len(tensors)]


def _sort_row(scratch: Sequence[ir.Value], length: Size, order: Order, emit: LoopEmitter) -> list[ir.Value]:
    """Merge runs of 1, 2, 4, … elements until one is as long as the row, which is row 0 of each of ``scratch``.

    Each pass reads one row and writes the other. Return the number of the row written last, then the tensors.
    """
    types = [*(tensor.type for tensor in scratch), *[ir.IndexType.get(emit.context)] * 2]
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
        at_left, at_right = (emit.index_op("minsi", position, last) for position in (left, right))
        pairs = [(emit.extract(tensor, source, at_left), emit.extract(tensor, source, at_right)) for tensor in scratch]
        ordered = order(emit, pairs)
        ordered = emit.value("arith.ori", "i1", ordered, emit.index_less(last, right))
        first = emit.value("arith.andi", "i1", ordered, emit.index_less(left, middle))
        merged = [
            emit.insert(emit.select_value(first, *pair), tensor, destination, target)
            for pair, tensor in zip(pairs, scratch, strict=True)
        ]
        one = emit.index(1)
        next_left = emit.select_value(first, emit.index_op("addi", left, one), left)
        next_right = emit.select_value(first, right, emit.index_op("addi", right, one))
        return [*merged, next_left, next_right]

    return emit.loop(low, high, 1, [*scratch, low, middle], merge_one)[: len(scratch)]


_MOST = 64
"""Maximum elements to keep: inserting all ``n``, such as sorted ones, should take no longer than sorting them."""


def slices_of_first(op: ir.Operation, axis: int) -> tuple[int, list[list[ir.Operation]]] | None:
    """Return how many elements along ``axis`` are read from the results of ``op``, and the slices that read each.

    None if they are more than `_MOST` or half of the row, if a size is dynamic, or if anything else reads a result.
    """
    readers = [[use.owner for use in result.uses] for result in op.results]
    slices = [reader for of_result in readers for reader in of_result]
    if not slices or any(slice_.name != "tensor.extract_slice" or len(slice_.operands) != 1 for slice_ in slices):
        return None
    source, first = (ir.RankedTensorType(value.type) for value in (op.results[0], slices[0].results[0]))
    if not source.has_static_shape or not first.has_static_shape or first.rank != source.rank:
        return None
    wanted = [first.shape[axis] if dim == axis else size for dim, size in enumerate(source.shape)]
    read = {"offsets": [0] * source.rank, "sizes": wanted, "strides": [1] * source.rank}
    for slice_ in slices:
        same_rank = ir.RankedTensorType(slice_.results[0].type).rank == source.rank
        if not same_rank or any(
            list(ir.DenseI64ArrayAttr(slice_.attributes[f"static_{k}"])) != v for k, v in read.items()
        ):
            return None
    count = wanted[axis]
    return (count, readers) if 0 < count <= min(_MOST, source.shape[axis] // 2) else None


def select(tensors: Sequence[ir.Value], axis: int, count: int, order: Order, emit: LoopEmitter) -> list[ir.Value]:
    """Return the first ``count`` elements along ``axis`` of `sort`, for each of ``tensors``."""
    sizes = emit.sizes(tensors[0])
    others = [dim for dim in range(len(sizes)) if dim != axis]
    kept: list[Size] = [count if dim == axis else size for dim, size in enumerate(sizes)]

    def select_in_row(emit: LoopEmitter, counters: Sequence[ir.Value], state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        results, best = state[: len(tensors)], state[len(tensors) :]
        positions = dict(zip(others, counters, strict=True))

        def take(emit: LoopEmitter, at: ir.Value, best: Sequence[ir.Value]) -> Sequence[ir.Value]:
            elements = [emit.extract(tensor, *(positions.get(i, at) for i in range(len(sizes)))) for tensor in tensors]
            return _insert(elements, best, emit.index_op("minsi", at, count), order, emit)

        best = emit.loop(0, sizes[axis], 1, best, take)
        offsets = [positions.get(dim, 0) for dim in range(len(sizes))]
        row = [count if dim == axis else 1 for dim in range(len(sizes))]
        first = [emit.extract_slice(tensor, [0], [count], [0]) for tensor in best]
        done = [emit.insert_slice(tensor, result, offsets, row) for tensor, result in zip(first, results, strict=True)]
        return [*done, *best]

    elements = [ir.RankedTensorType(tensor.type).element_type for tensor in tensors]
    results = [emit.empty(kept, element) for element in elements]
    best = [emit.empty([count + 1], element) for element in elements]  # the last one is never read
    return emit.nest([sizes[other] for other in others], [*results, *best], select_in_row)[: len(tensors)]


def _insert(
    elements: Sequence[ir.Value], best: Sequence[ir.Value], end: ir.Value, order: Order, emit: LoopEmitter
) -> list[ir.Value]:
    """Insert ``elements`` after the elements before ``end`` that may stay before them; shift the others by one."""
    types = [*(tensor.type for tensor in best), ir.IndexType.get(emit.context)]
    search = emit.op("scf.while", types, [*best, end], regions=2)
    condition = emit.add_block(search.regions[0], types)
    inside = emit.inside(condition)
    *before, position = condition.arguments
    previous = inside.index_op("maxsi", inside.index_op("subi", position, 1), 0)
    pairs = [(inside.extract(tensor, previous), new) for tensor, new in zip(before, elements, strict=True)]
    moves = inside.value("arith.xori", "i1", order(inside, pairs), inside.constant_integer(1, inside.type("i1")))
    goes_on = inside.value("arith.andi", "i1", moves, inside.index_less(0, position))
    inside.op("scf.condition", [], [goes_on, *condition.arguments])
    body = emit.add_block(search.regions[1], types)
    inside = emit.inside(body)
    *before, position = body.arguments
    previous = inside.index_op("subi", position, 1)
    moved = [inside.insert(inside.extract(tensor, previous), tensor, position) for tensor in before]
    inside.op("scf.yield", [], [*moved, previous])
    *after, position = search.results
    return [emit.insert(new, value, position) for new, value in zip(elements, after, strict=True)]
