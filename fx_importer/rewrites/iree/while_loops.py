"""Loops that IREE does not compile."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import is_used, terminator
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-while-to-do-while", ops=("scf.while",), emitter=LinalgOps)
def while_to_do_while(op: ir.Operation, emit: LinalgOps) -> None:
    """Turn an ``scf.while`` into a loop that computes its condition at its end, and takes each value once.

    ``while (c(x)) x = f(x)`` becomes ``if (c(x)) do x = f(x) while (c(x))``. IREE 3.13 fails, or is ended by a signal,
    for a loop in which the two regions take other numbers of values, and makes such loops itself: it removes values
    that nothing reads, and all but one of equal values. Barriers of IREE read each value, and hide which are equal.
    """
    op.context.allow_unregistered_dialects = True  # torch-mlir does not know the barrier
    before, after = (region.blocks[0] for region in op.regions)
    first_condition, *first = emit.inline_block(before, list(op.operands))
    last = terminator(after)
    end = LinalgOps.before(last)
    stop = end.op("scf.condition", [], end.inline_block(before, list(last.operands)))
    last.erase()
    end = LinalgOps.before(stop)
    kept: list[int] = []
    for at, (argument, result) in enumerate(zip(after.arguments, op.results, strict=True)):
        condition, *next_ = stop.operands  # which the replacements below change
        values = first[at], next_[at]
        if values == (first_condition, condition):  # true in the loop, and false after it
            inside = LinalgOps(ir.InsertionPoint.at_block_begin(after), op.location)
            argument.replace_all_uses_with(inside.constant_integer(1, argument.type))
            result.replace_all_uses_with(emit.constant_integer(0, argument.type))
        elif equal := [other for other in kept if (first[other], next_[other]) == values]:
            argument.replace_all_uses_with(after.arguments[equal[0]])
            result.replace_all_uses_with(op.results[equal[0]])
        elif is_used(argument) or is_used(result):
            kept.append(at)
    types = [op.results[at].type for at in kept]
    begin = [first[at] for at in kept]
    branches = emit.op("scf.if", types, [first_condition], regions=2)
    taken, skipped = (emit.inside(emit.add_block(region, ())) for region in branches.regions)
    loop = taken.op("scf.while", types, begin, regions=2)
    taken.op("scf.yield", [], list(loop.results))
    skipped.op("scf.yield", [], begin)
    again = emit.add_block(loop.regions[1], types)
    emit.inside(again).op("scf.yield", [], list(again.arguments))
    condition, *next_ = stop.operands
    end.op("scf.condition", [], [condition, *(_hidden(next_[at], end) for at in kept)])
    stop.erase()
    for at in reversed(range(len(after.arguments))):
        if at not in kept:
            after.erase_argument(at)
    after.append_to(loop.regions[0])
    inside = LinalgOps(ir.InsertionPoint.at_block_begin(after), op.location)
    for argument in after.arguments:
        _hidden(argument, inside)
    for at, result in zip(kept, branches.results, strict=True):
        op.results[at].replace_all_uses_with(result)
    op.erase()


def _hidden(value: ir.Value, emit: LinalgOps) -> ir.Value:
    return emit.value("util.optimization_barrier", value.type, value)
