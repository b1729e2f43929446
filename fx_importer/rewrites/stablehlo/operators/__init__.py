"""Operators that the C++ lowerings to StableHLO refuse, or have wrong, where sizes are known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import operations
from fx_importer.rewrites.stablehlo.operators import cumsum, reduce_window, slice_scatter, sort
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter

Rule = Callable[[ir.Operation, TensorEmitter], "Sequence[ir.Value] | None"]
"""Emits what an operator computes, as builtin tensors; None, before it emits any, leaves it to the C++ lowering."""

RULES: dict[str, Rule] = {**sort.RULES, **reduce_window.RULES, **slice_scatter.RULES, **cumsum.RULES}


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
