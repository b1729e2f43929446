"""Lower scans, scatters and sorts to scf, tensor and linalg instead of tm_tensor, which only torch-mlir supports.

Only ``convert-torch-to-tmtensor`` creates these operations, so only its region forms are handled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import CMPF
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.linalg.merge_sort import select, slices_of_first, sort


def _scan(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """Emit a loop along the axis. Each iteration writes a slice, in parallel over the other axes, and accumulates.

    The accumulator is initialized with the neutral element of the region, which takes the accumulator and an element.
    """
    source, out, accumulator = op.operands
    axis, inclusive = ir.IntegerAttr(op.attributes["dimension"]).value, ir.BoolAttr(op.attributes["inclusive"]).value
    region = op.regions[0].blocks[0]
    sizes = emit.sizes(source)
    others = [dim for dim in range(len(sizes)) if dim != axis]
    slice_sizes = [1 if dim == axis else size for dim, size in enumerate(sizes)]

    def body(emit: LoopEmitter, counter: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        out, before = state
        offsets = [counter if dim == axis else 0 for dim in range(len(sizes))]
        elements = emit.extract_slice(source, offsets, slice_sizes, others)
        if not inclusive:  # the accumulator is read before it is overwritten
            out = emit.insert_slice(before, out, offsets, slice_sizes)
        (after,) = emit.elementwise(
            [elements], [before], lambda inner, values: inner.inline_block(region, [values[1], values[0]])
        )
        if inclusive:
            out = emit.insert_slice(after, out, offsets, slice_sizes)
        return [out, after]

    return emit.loop(0, sizes[axis], 1, [out, accumulator], body)


def _scatter(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """Emit a loop over the updates, in order. Each is a scalar, or a slice along the last axes of the target.

    The index of an update along the axes of ``dimension_map`` is a row of the indices. The region takes an element of
    the update and one of the target.
    """
    updates, indices, out = op.operands
    region = op.regions[0].blocks[0]
    axes = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    count, *sizes = emit.sizes(updates)
    rank = ir.RankedTensorType(out.type).rank
    kept = range(rank - len(sizes), rank)
    slice_sizes = [*[1] * (rank - len(sizes)), *sizes]

    def body(emit: LoopEmitter, counter: ir.Value, state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        (out,) = state
        rows = [emit.extract(indices, counter, column) for column in range(len(axes))]
        starts = {axis: emit.value("arith.index_cast", "index", row) for axis, row in zip(axes, rows, strict=True)}
        offsets = [starts.get(axis, 0) for axis in range(rank)]
        if all(size == 1 for size in sizes):
            zeros = [0] * len(sizes)
            elements = [emit.extract(updates, counter, *zeros), emit.extract(out, *offsets)]
            return [emit.insert(emit.inline_block(region, elements)[0], out, *offsets)]
        update = emit.extract_slice(updates, [counter, *[0] * len(sizes)], [1, *sizes], range(1, len(sizes) + 1))
        before = emit.extract_slice(out, offsets, slice_sizes, kept)
        (after,) = emit.elementwise([update], [before], lambda inner, elements: inner.inline_block(region, elements))
        return [emit.insert_slice(after, out, offsets, slice_sizes)]

    return emit.loop(0, count, 1, [out], body)


def _sort(op: ir.Operation, emit: LoopEmitter) -> None:
    """Emit a merge sort, or a selection if only the first elements of each row are read.

    The region takes two elements of each operand, and returns whether they are in order. NaN is greater than any
    number, as in torch.
    """
    block = op.regions[0].blocks[0]

    def ordered(emit: LoopEmitter, pairs: Sequence[tuple[ir.Value, ir.Value]]) -> ir.Value:
        (ordered,) = emit.inline_block(block, [element for pair in pairs for element in pair])
        compare = ordered.owner
        if compare.name != "arith.cmpf":
            return ordered
        predicate = ir.IntegerAttr(compare.attributes["predicate"])
        nan_stays = {CMPF["ole"]: compare.operands[1], CMPF["oge"]: compare.operands[0]}.get(predicate.value)
        if nan_stays is None:
            return ordered
        return emit.value("arith.ori", "i1", ordered, emit.compare_floats("uno", nan_stays, nan_stays))

    axis, tensors = ir.IntegerAttr(op.attributes["dimension"]).value, list(op.operands)
    if (first := slices_of_first(op, axis)) is None:
        replace(op, *sort(tensors, axis, ordered, emit))
        return
    count, readers = first
    for value, slices in zip(select(tensors, axis, count, ordered, emit), readers, strict=True):
        for slice_ in slices:
            replace(slice_, value)
    op.erase()


_LOWERINGS: dict[str, Callable[[ir.Operation, LoopEmitter], None]] = {
    "tm_tensor.scan": lambda op, emit: replace(op, *_scan(op, emit)),
    "tm_tensor.scatter": lambda op, emit: replace(op, *_scatter(op, emit)),
    "tm_tensor.sort": _sort,
}


@rewrite("fx-importer-tm-tensor-to-loops", ops=_LOWERINGS, emitter=LoopEmitter)
def tm_tensor_to_loops(op: ir.Operation, emit: LoopEmitter) -> None:
    """Replace every ``tm_tensor.scan``, ``tm_tensor.scatter`` and ``tm_tensor.sort``."""
    _LOWERINGS[op.name](op, emit)
