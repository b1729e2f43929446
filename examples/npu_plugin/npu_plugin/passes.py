"""Passes of the NPU's compiler, in Python."""

from __future__ import annotations

from torch_mlir import ir

from fx_importer.mlir.walk import operations

VECTOR = 16
"""Lanes of the NPU."""


def mark_vector_operations(module: ir.Operation) -> None:
    """Give additions and multiplications the number of lanes that they fill."""
    for op in operations(module, ("tosa.add", "tosa.mul")):
        count = 1
        for size in ir.RankedTensorType(op.result.type).shape:
            count *= size
        op.attributes["npu.lanes"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), min(count, VECTOR))
