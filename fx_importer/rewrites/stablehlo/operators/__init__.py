"""Operators that the C++ lowerings to StableHLO refuse, or have wrong, where sizes are known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.bindings import ir
from fx_importer.rewrites.emitter import operations
from fx_importer.rewrites.stablehlo.operators import ordering, pooling, slices, sums
from fx_importer.rewrites.stablehlo.tensors import TensorEmitter

Rule = Callable[[ir.Operation, TensorEmitter], "Sequence[ir.Value] | None"]
"""Emits what an operator computes, as builtin tensors; None, before it emits any, leaves it to the C++ lowering."""

RULES: dict[str, Rule] = {**ordering.RULES, **pooling.RULES, **slices.RULES, **sums.RULES}


def operators_to_stablehlo(module: ir.Operation) -> None:
    """Replace operators of the torch dialect for which there is a rule."""
    for op in operations(module, RULES):
        emit = TensorEmitter(ir.InsertionPoint(op), op.location)
        made = RULES[op.name](op, emit)
        if made is None:
            continue
        for result, value in zip(op.results, made, strict=True):
            result.replace_all_uses_with(emit.receive(value, result.type))
        op.erase()
