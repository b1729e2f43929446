"""Sorts that IREE runs wrongly, or does not compile."""

from __future__ import annotations

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, terminator
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-reject-linalg-sorts", ops=("scf.while",))
def reject_linalg_sorts(passes: ir.Operation) -> None:
    """Raise `UsageError` for the merge sort of linalg: passes, in which loops write elements of the rows.

    IREE 3.13 returns wrong numbers for it, copies beyond its buffers, or ends the process.
    """
    loops = operations(passes, {"scf.for"})
    if _carries_tensors(passes) and any(_carries_tensors(loop) and _inserts(loop) for loop in loops):
        raise UsageError(
            "the IREE backend does not run sorts of linalg (sort, argsort, median, topk of most of a long row): "
            "IREE 3.13 gives wrong numbers for their loops. Lower to output_type='stablehlo' or 'torch', whose "
            f"sorts it runs, or use another backend; at {passes.location}"
        )


def _carries_tensors(loop: ir.Operation) -> bool:
    return any(isinstance(result.type, ir.RankedTensorType) for result in loop.results)


def _inserts(loop: ir.Operation) -> bool:
    return bool(operations(loop, {"tensor.insert"}))


@rewrite("fx-importer-keep-order-of-equal-elements", ops=("stablehlo.sort",))
def keep_order_of_equal_elements(op: ir.Operation) -> None:
    """Let sorts of StableHLO order equal elements by the positions that they move along, and hide results in a barrier.

    IREE 3.13 does not keep the order of equal elements in a stable sort. Of one whose first elements are read it makes
    ``chlo.top_k``, whatever the sort compares, which does not compile for positions of int64.
    """
    positions = [at for at, value in enumerate(op.operands) if producer(value) == "stablehlo.iota"]
    if not positions:
        return
    block = op.regions[0].blocks[0]
    arguments, last = list(block.arguments), terminator(block)
    first, second = arguments[2 * positions[0] : 2 * positions[0] + 2]
    emit = StablehloOps.before(last)
    before = last.operands[0]
    (after,) = emit.inline_block(block, [arguments[at ^ 1] for at in range(len(arguments))])
    equal = emit.stablehlo("not", before.type, after)
    tied = emit.stablehlo("and", before.type, equal, emit.compare("LT", first, second))
    last.operands[0] = emit.stablehlo("or", before.type, before, tied)
    _hide(op)


def _hide(op: ir.Operation) -> None:
    """Replace uses of the results of ``op`` with the results of a barrier."""
    emit = StablehloOps(ir.InsertionPoint.after(op), op.location)
    uses = [[(use.owner, use.operand_number) for use in result.uses] for result in op.results]
    hidden = emit.op("stablehlo.optimization_barrier", [result.type for result in op.results], list(op.results))
    for result, readers in zip(hidden.results, uses, strict=True):
        for reader, number in readers:
            reader.operands[number] = result
