"""Loops that IREE does not compile."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, replace, terminator
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-while-to-do-while", ops=("scf.while",), emitter=Emitter)
def while_to_do_while(op: ir.Operation, emit: Emitter) -> None:
    """Let an ``scf.while`` whose condition passes on fewer values than it takes compute the condition at its end.

    ``while (c(x)) x = f(x)`` becomes ``if (c(x)) do x = f(x) while (c(x))``. IREE 3.13 refuses a loop in which the two
    regions take other numbers of values, such as one that carries its condition.
    """
    before, after = (region.blocks[0] for region in op.regions)
    if len(before.arguments) == len(after.arguments):
        return
    types = [result.type for result in op.results]
    condition, *first = emit.inline_block(before, list(op.operands))
    branches = emit.op("scf.if", types, [condition], regions=2)
    taken, skipped = (emit.inside(emit.add_block(region, ())) for region in branches.regions)
    loop = taken.op("scf.while", types, first, regions=2)
    taken.op("scf.yield", [], list(loop.results))
    skipped.op("scf.yield", [], first)
    again = emit.add_block(loop.regions[1], types)
    emit.inside(again).op("scf.yield", [], list(again.arguments))
    after.append_to(loop.regions[0])
    last = terminator(after)
    end = Emitter.before(last)
    end.op("scf.condition", [], end.inline_block(before, list(last.operands)))
    last.erase()
    replace(op, *branches.results)
