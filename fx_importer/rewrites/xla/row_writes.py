"""Writes of rows of donated state, so that XLA 0.10 does them in place."""

from __future__ import annotations

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter, producer
from fx_importer.mlir.functions import checks_assumptions, state_aliases
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-row-writes-to-case", ops=("func.func",))
def row_writes_to_case(operation: ir.Operation) -> None:
    """Turn writes of rows to state whose memory XLA may reuse into ``stablehlo.case``.

    A row that is outside is not written: our lowering selects what was there. XLA fuses ``dynamic_update_slice`` with
    each of its readers, and copies the whole state for each. It keeps a conditional by itself, with results in the
    memory of its operands if the first branch is the one that writes nothing.
    """
    function = operation.opview
    assert isinstance(function, func_d.FuncOp)
    donated = donated_arguments(function)
    for op in operations(operation, ("stablehlo.dynamic_update_slice",)):
        target, update, *starts = op.operands
        if not isinstance(target.owner, ir.Block) or ir.BlockArgument(target).arg_number not in donated:
            continue
        if producer(update) != "stablehlo.select":
            continue
        inside, rows, before = update.owner.operands
        if producer(before) != "stablehlo.dynamic_slice" or before.owner.operands[0] != target:
            continue
        if ir.RankedTensorType(inside.type).rank or list(before.owner.operands)[1:] != starts:
            continue
        emit = Emitter.before(op)
        index = emit.value("stablehlo.convert", "tensor<i32>", inside)
        choice = emit.op("stablehlo.case", [target.type], [index], regions=2)
        skip, write = (emit.inside(emit.add_block(region, [])) for region in choice.regions)
        skip.op("stablehlo.return", [], [target])
        written = write.value("stablehlo.dynamic_update_slice", target.type, target, rows, *starts)
        write.op("stablehlo.return", [], [written])
        op.results[0].replace_all_uses_with(choice.result)
        op.erase()


def donated_arguments(function: func_d.FuncOp) -> set[int]:
    """Return the positions of state whose new value has the same type, and can be in its memory."""
    if checks_assumptions(function):
        return set()
    arguments, returned = function.type.inputs, function.type.results
    return {old for new, old in state_aliases(function).items() if arguments[old] == returned[new]}
