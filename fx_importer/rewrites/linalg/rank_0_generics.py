"""Inline structured operations on rank-0 tensors as scalar operations."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-inline-rank-0-generics", ops=("linalg.generic",), emitter=LoopEmitter)
def inline_rank_0_generics(op: ir.Operation, emit: LoopEmitter) -> None:
    """Replace each rank-0 ``linalg.generic`` by its body; in a loop, each would allocate its result."""
    if all(isinstance(operand.type, ir.RankedTensorType) and not emit.shape(operand) for operand in op.operands):
        scalars = [emit.extract(each) for each in op.operands]
        replace(op, *map(emit.as_tensor, emit.inline_block(op.regions[0].blocks[0], scalars)))
