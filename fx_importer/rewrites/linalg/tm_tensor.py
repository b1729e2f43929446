"""Scans, scatters and sorts in scf, tensor and linalg, in place of torch-mlir's own dialect, which no other tool knows.

``convert-torch-to-tmtensor`` makes those operations, and nothing else does: their regions are what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import operations
from fx_importer.mlir.emit_loops import LoopEmitter
from fx_importer.rewrites.linalg.merge_sort import sort


def tm_tensor_to_loops(module: ir.Operation) -> None:
    """Replace every ``tm_tensor.scan``, ``tm_tensor.scatter`` and ``tm_tensor.sort``."""
    for op in operations(module, _RULES):
        emit = LoopEmitter(ir.InsertionPoint(op), op.location)
        for old, new in zip(op.results, _RULES[op.name](op, emit), strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def _scan(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """A loop along the axis. The other axes are parallel in each turn, which writes a slice and accumulates.

    The accumulator comes in filled with what is neutral to the region, which takes it and an element.
    """
    source, out, accumulator = op.operands
    axis, inclusive = ir.IntegerAttr(op.attributes["dimension"]).value, ir.BoolAttr(op.attributes["inclusive"]).value
    region = op.regions[0].blocks[0]
    sizes = emit.sizes(source)
    others = [each for each in range(len(sizes)) if each != axis]
    taken = [1 if each == axis else size for each, size in enumerate(sizes)]

    def turn(emit: LoopEmitter, counter: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        out, before = state
        offsets = [counter if each == axis else 0 for each in range(len(sizes))]
        elements = emit.slice(source, offsets, taken, others)
        (after,) = emit.elementwise([elements], [before], lambda inner, each: inner.inline(region, [each[1], each[0]]))
        return [emit.unslice(after if inclusive else before, out, offsets, taken), after]

    return emit.loop(0, sizes[axis], 1, [out, accumulator], turn)


def _scatter(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """A loop over the updates, in order. Each is a number, or a slice whose axes are the last ones of the target's.

    The position of an update along the axes of ``dimension_map`` is a row of the indices. The region takes an element
    of the update and one of the target.
    """
    updates, indices, out = op.operands
    region = op.regions[0].blocks[0]
    axes = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    count, *sizes = emit.sizes(updates)
    rank = ir.RankedTensorType(out.type).rank
    kept = range(rank - len(sizes), rank)
    taken = [*[1] * (rank - len(sizes)), *sizes]

    def turn(emit: LoopEmitter, counter: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        (out,) = state
        rows = [emit.take(indices, counter, column) for column in range(len(axes))]
        place = {axis: emit.value("arith.index_cast", "index", row) for axis, row in zip(axes, rows, strict=True)}
        offsets = [place.get(axis, 0) for axis in range(rank)]
        if all(size == 1 for size in sizes):
            zeros = [0] * len(sizes)
            elements = [emit.take(updates, counter, *zeros), emit.take(out, *offsets)]
            return [emit.put(emit.inline(region, elements)[0], out, *offsets)]
        update = emit.slice(updates, [counter, *[0] * len(sizes)], [1, *sizes], range(1, len(sizes) + 1))
        before = emit.slice(out, offsets, taken, kept)
        (after,) = emit.elementwise([update], [before], lambda inner, elements: inner.inline(region, elements))
        return [emit.unslice(after, out, offsets, taken)]

    return emit.loop(0, count, 1, [out], turn)


_RULES: dict[str, Callable[[ir.Operation, LoopEmitter], Sequence[ir.Value]]] = {
    "tm_tensor.scan": _scan,
    "tm_tensor.scatter": _scatter,
    "tm_tensor.sort": sort,
}
