"""Divisions of integers that do not trap."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.walk import operations, rewrite

_QUOTIENTS = ("arith.divsi", "arith.floordivsi", "arith.ceildivsi")


@rewrite("fx-importer-divide-without-traps")
def divide_without_traps(module: ir.Operation) -> None:
    """Compute quotients by -1 as negations: processors trap at the least integer divided by -1."""
    for op in operations(module, {*_QUOTIENTS, "arith.remsi"}):
        dividend, divisor = op.operands
        if not isinstance(divisor.type, ir.IntegerType) or producer(divisor) == "arith.constant":
            continue
        emit = ArithOps.before(op)
        is_minus_one = emit.compare_integers("eq", divisor, emit.constant_integer(-1, divisor.type))
        op.operands[1] = emit.select_value(is_minus_one, emit.constant_integer(1, divisor.type), divisor)
        if op.name not in _QUOTIENTS:  # the remainder is 0 for both
            continue
        negated = emit.value("arith.subi", divisor.type, emit.constant_integer(0, divisor.type), dividend)
        after = ArithOps(ir.InsertionPoint.after(op), op.location)
        selected = after.select_value(is_minus_one, negated, op.results[0])
        op.results[0].replace_all_uses_except(selected, selected.owner.operation)
