"""Counts no-ops in a StableHLO module by kind, independently of the passes that remove them."""

from __future__ import annotations

from collections import Counter

from fx_importer.mlir.bindings import ir

SAME = {f"stablehlo.{name}" for name in ("convert", "reshape", "broadcast_in_dim", "slice", "transpose")}
"""No-ops if the type is kept, unless they permute elements."""
TWICE = {"stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim"}


def stablehlo_no_ops(module: ir.Module) -> dict[str, int]:
    """Return the number of no-ops of each kind."""
    found: Counter[str] = Counter()

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name.startswith("stablehlo.") and name != "stablehlo.return":
            if not any(list(result.uses) for result in op.results):
                found[f"dead {name}"] += 1
            if name in SAME and op.results[0].type == op.operands[0].type and _keeps_the_order(op):
                found[f"{name} to the same type"] += 1
            if name in TWICE and _producer(op.operands[0]) == name:
                found[f"{name} twice"] += 1
            if name == "stablehlo.transpose" and _producer(op.operands[0]) == "stablehlo.constant":
                users = {use.owner.name for use in op.results[0].uses}
                found["weight transposed for a product"] += "stablehlo.dot_general" in users
            if name == "stablehlo.multiply" and any(" dense<1.000000e+00> " in _constant(each) for each in op.operands):
                found["multiplication by 1"] += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return dict(+found)


def _keeps_the_order(op: ir.Operation) -> bool:
    names = ("permutation", "broadcast_dimensions")
    orders = [list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in names if name in op.attributes]
    return all(order == sorted(order) for order in orders)


def _producer(value: ir.Value) -> str:
    return "" if isinstance(value.owner, ir.Block) else value.owner.name


def _constant(value: ir.Value) -> str:
    """Return the text of the constant that ``value`` is, possibly broadcast."""
    while _producer(value) in ("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim"):
        value = value.owner.operands[0]
    small = _producer(value) == "stablehlo.constant"
    return value.owner.get_asm(large_elements_limit=8) if small else ""
