"""Paddings whose value has another type than the tensor."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-tosa-padding-types", ops=("tosa.pad",), emitter=TosaOps)
def tosa_padding_types(op: ir.Operation, emit: TosaOps) -> None:
    """Give the zeros that pad a weight its type: MLIR's decomposition of transposed convolutions takes the image's."""
    x, _, value = op.operands
    if emit.element(value) != (element := emit.element(x)):
        op.operands[2] = emit.const(emit.attribute(f"dense<0> : tensor<1x{element}>"))
