"""Write rows with ``tensor.insert_slice``; the C++ lowering writes element by element."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, replace
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.torch.region_types import TypeConverter
from fx_importer.rewrites.torch.row_writes import INDEX_PUTS, RowWrite

_UNROLLED = 16
"""The maximum number of rows written without a loop: IREE copies the target of a loop once per call."""


@rewrite("fx-importer-row-writes-to-linalg", ops=INDEX_PUTS, emitter=TypeConverter)
def row_writes_to_linalg(op: ir.Operation, emit: TypeConverter) -> None:
    """Replace a write of rows along one axis by one insertion if they are adjacent, else by one insertion per row."""
    write = RowWrite.of(op)
    if write is None:
        return
    loops = LoopEmitter.before(op)
    target, values = emit.to_builtin(write.target), emit.to_builtin(write.values)
    sizes = loops.sizes(values)
    if write.first is not None:
        first = emit.to_builtin(write.first)
        position = [0] * ir.RankedTensorType(first.type).rank
        start = loops.value("arith.index_cast", "index", loops.extract(first, *position))
        written = loops.insert_slice(values, target, _at(write.axis, start, len(sizes)), sizes)
    else:
        written = _one_by_one(write, values, target, emit.to_builtin(write.rows), loops)
    replace(op, emit.from_builtin(written, op.results[0].type))


def _one_by_one(write: RowWrite, values: ir.Value, target: ir.Value, rows: ir.Value, loops: LoopEmitter) -> ir.Value:
    sizes = loops.sizes(values)
    row_sizes: list[Size] = [1 if axis == write.axis else size for axis, size in enumerate(sizes)]

    def written(inside: LoopEmitter, number: Size, target: ir.Value) -> ir.Value:
        row = inside.extract_slice(values, _at(write.axis, number, len(sizes)), row_sizes, range(len(sizes)))
        position = inside.value("arith.index_cast", "index", inside.extract(rows, number))
        return inside.insert_slice(row, target, _at(write.axis, position, len(sizes)), row_sizes)

    if write.number is None or write.number > _UNROLLED:
        return loops.loop(0, sizes[write.axis], 1, [target], lambda inside, i, state: [written(inside, i, state[0])])[0]
    for number in range(write.number):
        target = written(loops, number, target)
    return target


def _at(axis: int, position: Size, rank: int) -> list[Size]:
    return [position if dim == axis else 0 for dim in range(rank)]
