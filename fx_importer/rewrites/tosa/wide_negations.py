"""Negations of int64."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-tosa-wide-negations", ops=("tosa.negate",), emitter=TosaOps)
def tosa_wide_negations(op: ir.Operation, emit: TosaOps) -> None:
    """Subtract int64 from 0: MLIR's lowering computes the zero points of a negation in 16 bits. They are 0 in int64."""
    x = op.operands[0]
    if emit.element(x) != "i64":
        return
    zero = emit.const(emit.attribute(f"dense<0> : tensor<{'1x' * ir.RankedTensorType(x.type).rank}i64>"))
    op.results[0].replace_all_uses_with(emit.value("tosa.sub", x.type, zero, x))
    op.erase()
