"""A merge sort in scf loops: stable, and in n log n steps."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit_loops import LoopEmitter, Size

_OGE, _OLE, _UNORDERED = 3, 5, 14  # arith.cmpf's predicates


def sort(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """Sort the operands of ``op``, a ``tm_tensor.sort``, along its axis, together; return the results.

    Its region takes two elements of each operand, and says whether the first two may stay in this order. Not a number
    is greater than any, as in torch.
    """
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    block = op.regions[0].blocks[0]
    tensors = list(op.operands)
    sizes = emit.sizes(tensors[0])
    taken: list[Size] = [size if each == axis else 1 for each, size in enumerate(sizes)]
    others = [each for each in range(len(sizes)) if each != axis]

    def row(emit: LoopEmitter, counters: Sequence[ir.Value], state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        place = dict(zip(others, counters, strict=True))
        offsets = [place.get(each, 0) for each in range(len(sizes))]
        rows = [emit.slice(tensor, offsets, taken, [axis]) for tensor in state]
        done = _sort_row(rows, sizes[axis], block, emit)
        return [emit.unslice(each, tensor, offsets, taken) for each, tensor in zip(done, state, strict=True)]

    return emit.nest([sizes[each] for each in others], tensors, row)


def _sort_row(rows: Sequence[ir.Value], length: Size, block: ir.Block, emit: LoopEmitter) -> list[ir.Value]:
    """Merge runs of 1, 2, 4, … elements until one is as long as the row. Each pass writes to new memory."""
    types = [ir.IndexType.get(emit.context), *(row.type for row in rows)]
    passes = emit.op("scf.while", types, [emit.index(1), *rows], regions=2)
    locations = [emit.location] * len(types)
    test = passes.regions[0].blocks.append(*types, arg_locs=locations)
    inside = emit.inside(test)
    inside.op("scf.condition", [], [inside.less(test.arguments[0], length), *test.arguments])
    body = passes.regions[1].blocks.append(*types, arg_locs=locations)
    inside = emit.inside(body)
    run, *before = body.arguments
    twice = inside.of_index("addi", run, run)

    def merge(emit: LoopEmitter, low: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        middle = emit.of_index("minsi", emit.of_index("addi", low, run), length)
        high = emit.of_index("minsi", emit.of_index("addi", low, twice), length)
        return _merge(before, state, (low, middle, high), block, emit)

    after = inside.loop(0, length, twice, [_like(row, length, inside) for row in rows], merge)
    inside.op("scf.yield", [], [twice, *after])
    return list(passes.results)[1:]


def _merge(
    before: Sequence[ir.Value],
    after: Sequence[ir.Value],
    bounds: tuple[ir.Value, ir.Value, ir.Value],
    block: ir.Block,
    emit: LoopEmitter,
) -> list[ir.Value]:
    """Merge two runs of ``before``, from low to middle and from middle to high, into the same place of ``after``."""
    low, middle, high = bounds
    last = emit.of_index("subi", high, 1)

    def step(emit: LoopEmitter, target: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        left, right, *rows = state
        # What is read behind the end of a run is not used.
        at_left, at_right = (emit.of_index("minsi", each, last) for each in (left, right))
        pairs = [(emit.take(row, at_left), emit.take(row, at_right)) for row in before]
        ordered = _ordered(block, pairs, emit)
        ordered = emit.value("arith.ori", "i1", ordered, emit.less(last, right))
        first = emit.value("arith.andi", "i1", ordered, emit.less(left, middle))
        rows = [emit.put(emit.select(first, *pair), row, target) for pair, row in zip(pairs, rows, strict=True)]
        one = emit.index(1)
        next_left = emit.select(first, emit.of_index("addi", left, one), left)
        next_right = emit.select(first, right, emit.of_index("addi", right, one))
        return [next_left, next_right, *rows]

    return emit.loop(low, high, 1, [low, middle, *after], step)[2:]


def _ordered(block: ir.Block, pairs: Sequence[tuple[ir.Value, ir.Value]], emit: LoopEmitter) -> ir.Value:
    """Emit whether the first of two elements may stay the first."""
    (ordered,) = emit.inline(block, [element for pair in pairs for element in pair])
    compare = ordered.owner
    if compare.name != "arith.cmpf":
        return ordered
    predicate = ir.IntegerAttr(compare.attributes["predicate"])
    nan_stays = {_OLE: compare.operands[1], _OGE: compare.operands[0]}.get(predicate.value)
    if nan_stays is None:
        return ordered
    unordered = {"predicate": ir.IntegerAttr.get(predicate.type, _UNORDERED)}
    is_nan = emit.op("arith.cmpf", ["i1"], [nan_stays, nan_stays], unordered).result
    return emit.value("arith.ori", "i1", ordered, is_nan)


def _like(row: ir.Value, length: Size, emit: LoopEmitter) -> ir.Value:
    return emit.empty([length], ir.RankedTensorType(row.type).element_type)
