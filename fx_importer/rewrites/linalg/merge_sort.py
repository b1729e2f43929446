"""A stable merge sort in scf loops, in O(n log n)."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Size
from fx_importer.mlir.emit_arith import CMPF
from fx_importer.mlir.emit_loops import LoopEmitter


def sort(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """Sort the operands of ``op``, a ``tm_tensor.sort``, along its axis, together; return the results.

    Its region takes two elements of each operand, and returns whether the first one may stay the first. NaN is greater
    than any number, as in torch.
    """
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    block = op.regions[0].blocks[0]
    tensors = list(op.operands)
    sizes = emit.sizes(tensors[0])
    row_sizes: list[Size] = [size if each == axis else 1 for each, size in enumerate(sizes)]
    others = [each for each in range(len(sizes)) if each != axis]

    def sort_one_row(emit: LoopEmitter, counters: Sequence[ir.Value], state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        positions = dict(zip(others, counters, strict=True))
        offsets = [positions.get(each, 0) for each in range(len(sizes))]
        rows = [emit.extract_slice(tensor, offsets, row_sizes, [axis]) for tensor in state]
        ordered = _sort_row(rows, sizes[axis], block, emit)
        return [
            emit.insert_slice(each, tensor, offsets, row_sizes) for each, tensor in zip(ordered, state, strict=True)
        ]

    return emit.nest([sizes[each] for each in others], tensors, sort_one_row)


def _sort_row(rows: Sequence[ir.Value], length: Size, block: ir.Block, emit: LoopEmitter) -> list[ir.Value]:
    """Merge runs of 1, 2, 4, … elements until one is as long as the row. Each pass writes to new memory."""
    types = [ir.IndexType.get(emit.context), *(row.type for row in rows)]
    passes = emit.op("scf.while", types, [emit.index(1), *rows], regions=2)
    condition = emit.add_block(passes.regions[0], types)
    inside = emit.inside(condition)
    inside.op("scf.condition", [], [inside.less(condition.arguments[0], length), *condition.arguments])
    body = emit.add_block(passes.regions[1], types)
    inside = emit.inside(body)
    run, *before = body.arguments
    twice = inside.index_op("addi", run, run)

    def merge(emit: LoopEmitter, low: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        middle = emit.index_op("minsi", emit.index_op("addi", low, run), length)
        high = emit.index_op("minsi", emit.index_op("addi", low, twice), length)
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
    last = emit.index_op("subi", high, 1)

    def merge_one(emit: LoopEmitter, target: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        left, right, *rows = state
        # An element read beyond the end of a run is not used.
        at_left, at_right = (emit.index_op("minsi", each, last) for each in (left, right))
        pairs = [(emit.extract(row, at_left), emit.extract(row, at_right)) for row in before]
        ordered = _ordered(block, pairs, emit)
        ordered = emit.value("arith.ori", "i1", ordered, emit.less(last, right))
        first = emit.value("arith.andi", "i1", ordered, emit.less(left, middle))
        rows = [
            emit.insert(emit.select_value(first, *pair), row, target) for pair, row in zip(pairs, rows, strict=True)
        ]
        one = emit.index(1)
        next_left = emit.select_value(first, emit.index_op("addi", left, one), left)
        next_right = emit.select_value(first, right, emit.index_op("addi", right, one))
        return [next_left, next_right, *rows]

    return emit.loop(low, high, 1, [low, middle, *after], merge_one)[2:]


def _ordered(block: ir.Block, pairs: Sequence[tuple[ir.Value, ir.Value]], emit: LoopEmitter) -> ir.Value:
    """Emit whether the first of two elements may stay the first: the region of the sort, and its order of NaN."""
    (ordered,) = emit.inline_block(block, [element for pair in pairs for element in pair])
    compare = ordered.owner
    if compare.name != "arith.cmpf":
        return ordered
    predicate = ir.IntegerAttr(compare.attributes["predicate"])
    nan_stays = {CMPF["ole"]: compare.operands[1], CMPF["oge"]: compare.operands[0]}.get(predicate.value)
    if nan_stays is None:
        return ordered
    return emit.value("arith.ori", "i1", ordered, emit.compare_floats("uno", nan_stays, nan_stays))


def _like(row: ir.Value, length: Size, emit: LoopEmitter) -> ir.Value:
    return emit.empty([length], ir.RankedTensorType(row.type).element_type)
