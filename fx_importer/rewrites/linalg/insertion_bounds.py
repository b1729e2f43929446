"""Clamp ``tensor.insert_slice``, for engines without bounds checks."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-clamp-insertions", ops=("tensor.insert_slice",), emitter=LinalgOps)
def clamp_insertions(op: ir.Operation, emit: LinalgOps) -> None:
    """Clamp the dynamic offsets of insertions like ``stablehlo.dynamic_update_slice``, to stay within bounds.

    A slice that does not fit is inserted at the end of the tensor; eager PyTorch raises an error instead.
    """
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    target = op.operands[1]
    operand = 2
    offsets = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))
    sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
    values = iter(list(op.operands)[2 + offsets.count(dynamic) :])
    for axis, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        length = next(values) if ir.ShapedType.is_dynamic_size(size) else size
        if offset != dynamic:
            continue
        last = emit.index_op("subi", emit.size(target, axis), length)
        inside = emit.index_op("minsi", op.operands[operand], last)
        op.operands[operand] = emit.index_op("maxsi", inside, 0)
        operand += 1
