"""Buffers that one operation fills, and another adds to."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, terminator


def fill_before(op: ir.Operation) -> ir.Operation | None:
    """Return the operation that fills the buffer to which ``op`` adds its sums.

    None if there is no such operation, or others use the buffer before ``op``, which may read it.
    """
    buffer = op.operands[2]
    if producer(buffer) not in ("memref.alloc", "memref.view"):  # what they return has no other name before
        return None
    users = [use.owner.operation for use in buffer.uses]
    before = [user for user in users if user.block == op.block and user.is_before_in_block(op)]
    if len(before) != 1 or any(user.block != op.block for user in users) or before[0].name != "linalg.generic":
        return None
    (fill,) = before
    if len(fill.operands) != 2 or fill.operands[1] != buffer or isinstance(fill.operands[0].type, ir.ShapedType):
        return None
    block = fill.regions[0].blocks[0]
    return fill if list(terminator(block).operands) == [block.arguments[0]] else None
