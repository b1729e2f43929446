"""Lower boolean ``stablehlo.add`` to ``or``; StableHLO's own conversion to linalg adds modulo 2."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, replace
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-boolean-sums-to-or", ops=("stablehlo.add",), emitter=Emitter)
def boolean_sums_to_or(op: ir.Operation, emit: Emitter) -> None:
    """Replace ``stablehlo.add`` of booleans by ``stablehlo.or``, as the specification defines it."""
    if emit.element(op.results[0]) == "i1":
        replace(op, emit.value("stablehlo.or", op.results[0].type, *op.operands))
