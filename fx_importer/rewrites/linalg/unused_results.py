"""Drop unused results of structured operations, such as the argmax next to the maximum in a softmax."""

from __future__ import annotations

from collections.abc import Iterable

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, terminator
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-drop-unused-linalg-results", ops=("linalg.generic",))
def drop_unused_results(op: ir.Operation) -> None:
    """Drop unused results of a ``linalg.generic`` and their computation, if other results are used.

    The canonicalizer keeps results whose computation reads their own accumulator.
    """
    used = {number for number, result in enumerate(op.results) if next(result.uses, None) is not None}
    if not used or len(used) == len(op.results):
        return
    block = op.regions[0].blocks[0]
    inputs = len(op.operands) - len(op.results)
    kept, computation = _kept(block, used, inputs)
    if len(kept) == len(op.results):
        return

    yielded, maps = terminator(block), list(ir.ArrayAttr(op.attributes["indexing_maps"]))
    operands = [*range(inputs), *(inputs + number for number in kept)]
    emit = Emitter.before(op)
    attributes = {name: op.attributes[name] for name in op.attributes} | {
        "indexing_maps": ir.ArrayAttr.get([maps[number] for number in operands], op.context),
        "operandSegmentSizes": emit.segments(inputs, len(kept)),
    }
    types = [op.results[number].type for number in kept]
    made = emit.op("linalg.generic", types, [op.operands[number] for number in operands], attributes, regions=1)
    dropped = [operation.operation for operation in block.operations if operation.operation not in computation]
    Emitter.before(yielded).op("linalg.yield", [], [yielded.operands[number] for number in kept])
    for each in reversed(dropped):
        each.erase()
    for number in reversed(range(len(op.results))):
        if number not in kept:
            block.erase_argument(inputs + number)
    block.append_to(made.regions[0])
    for number, result in zip(kept, made.results, strict=True):
        op.results[number].replace_all_uses_with(result)
    op.erase()


def _kept(block: ir.Block, used: Iterable[int], inputs: int) -> tuple[list[int], set[ir.Operation]]:
    """Return the results to keep, and the operations that compute them, without the terminator.

    They are the ``used`` results, and results whose accumulator these read. Operations with effects are kept.
    """
    kept, computation = set(used), set[ir.Operation]()
    yielded = terminator(block)
    left = [yielded.operands[number] for number in kept]
    for operation in block.operations:
        if not operation.operation.results and operation.operation != yielded:
            computation.add(operation.operation)
            left += operation.operation.operands
    while left:
        value = left.pop()
        if isinstance(value.owner, ir.Block):
            number = ir.BlockArgument(value).arg_number - inputs
            if value.owner == block and number >= 0 and number not in kept:
                kept.add(number)
                left.append(yielded.operands[number])
        elif value.owner not in computation:
            computation.add(value.owner)
            left += value.owner.operands
    return sorted(kept), computation
