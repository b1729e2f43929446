"""Lower ``stablehlo.if`` and ``stablehlo.while`` to scf; ``stablehlo-legalize-to-linalg`` leaves them alone."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace, terminator
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-stablehlo-control-flow-to-scf", ops=("stablehlo.if", "stablehlo.while"), emitter=LoopEmitter)
def stablehlo_control_flow_to_scf(op: ir.Operation, emit: LoopEmitter) -> None:
    """Turn every ``stablehlo.if`` and ``stablehlo.while`` into ``scf.if`` and ``scf.while``."""
    types = [result.type for result in op.results]
    if op.name == "stablehlo.if":
        new = emit.op("scf.if", types, [emit.extract(op.operands[0])], regions=2)
    else:
        new = emit.op("scf.while", types, list(op.operands), regions=2)
    for old_region, region in zip(op.regions, new.regions, strict=True):
        block = old_region.blocks[0]
        is_condition = op.name == "stablehlo.while" and old_region == op.regions[0]
        block.append_to(region)
        last = terminator(block)
        end = LoopEmitter.before(last)
        if is_condition:
            end.op("scf.condition", [], [end.extract(last.operands[0]), *block.arguments])
        else:
            end.op("scf.yield", [], list(last.operands))
        last.erase()
    replace(op, *new.results)
