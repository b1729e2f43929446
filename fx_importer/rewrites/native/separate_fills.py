"""Tensors of one value, which operations then write to."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-separate-fills")
def separate_fills(module: ir.Operation) -> None:
    """Give each operation that reads a tensor of one value a tensor of its own, which is filled right before.

    CSE makes them one: then the memory is kept from the first to the last, and copied for each that writes to it, as
    sums of convolutions and padded tensors are. Operations in loops inside stay, since they would fill it each time.
    """
    for op in operations(module.operation, ("linalg.generic",)):
        fills = len(op.results) == 1 and not any(isinstance(value.type, ir.RankedTensorType) for value in _inputs(op))
        if not fills:
            continue
        uses = list(op.results[0].uses)
        if len(uses) < 2 or any(use.owner.operation.block != op.operation.block for use in uses):
            continue
        for use in uses:
            with ir.InsertionPoint(use.owner):
                use.owner.operands[use.operand_number] = op.operation.clone().results[0]
        op.operation.erase()


def _inputs(op: ir.Operation) -> list[ir.Value]:
    segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    return list(op.operands)[: segments[0]]
