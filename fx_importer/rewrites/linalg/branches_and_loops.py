"""Lower branches and loops of StableHLO and TOSA to scf.

``stablehlo-legalize-to-linalg`` leaves them alone, and ``tosa-to-scf`` fails for a loop in a loop.
"""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace, terminator
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite

_BRANCHES = ("stablehlo.if", "tosa.cond_if")
_LOOPS = ("stablehlo.while", "tosa.while_loop")


@rewrite("fx-importer-branches-and-loops-to-scf", ops=(*_BRANCHES, *_LOOPS), emitter=LoopEmitter)
def branches_and_loops_to_scf(op: ir.Operation, emit: LoopEmitter) -> None:
    """Turn every ``stablehlo.if``, ``stablehlo.while``, ``tosa.cond_if`` and ``tosa.while_loop`` into scf."""
    types = [result.type for result in op.results]
    if op.name in _BRANCHES:
        condition, *inputs = op.operands
        new = emit.op("scf.if", types, [_element(condition, emit)], regions=2)
    else:
        inputs = []
        new = emit.op("scf.while", types, list(op.operands), regions=2)
    for old_region, region in zip(op.regions, new.regions, strict=True):
        block = old_region.blocks[0]
        is_condition = op.name in _LOOPS and old_region == op.regions[0]
        for value in reversed(inputs):
            argument = block.arguments[-1]
            argument.replace_all_uses_with(value)
            block.erase_argument(argument.arg_number)
        block.append_to(region)
        last = terminator(block)
        end = LoopEmitter.before(last)
        if is_condition:
            end.op("scf.condition", [], [_element(last.operands[0], end), *block.arguments])
        else:
            end.op("scf.yield", [], list(last.operands))
        last.erase()
    replace(op, *new.results)


def _element(condition: ir.Value, emit: LoopEmitter) -> ir.Value:
    return emit.extract(condition, *[0] * ir.RankedTensorType(condition.type).rank)
