"""Tensors without elements that operations write their results into."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-separate-empty-tensors")
def separate_empty_tensors(module: ir.Operation) -> None:
    """Give each operation a ``tensor.empty`` of its own, except in loops, where it would be allocated each time.

    CSE makes them one: then all that is computed into it may share memory, and one-shot bufferization takes time that
    grows with the cube of the number of unrolled steps.
    """
    for op in operations(module.operation, ("tensor.empty",)):
        for use in list(op.results[0].uses)[1:]:
            if use.owner.operation.block == op.operation.block:
                with ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = op.operation.clone().results[0]
