"""Constant tensors that conversions left as ``arith.constant``, in the dialect that the rest of the module is in."""

from __future__ import annotations

from fx_importer.bindings import ir


def constants_to_tosa(module: ir.Operation) -> None:
    """Turn every constant tensor into a ``tosa.const``."""
    _rewrite(module, "tosa.const", "values")


def constants_to_stablehlo(module: ir.Operation) -> None:
    """Turn every constant tensor into a ``stablehlo.constant``."""
    _rewrite(module, "stablehlo.constant", "value")


def _rewrite(module: ir.Operation, name: str, attribute: str) -> None:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    for op in found:
        type_ = op.results[0].type
        if isinstance(ir.RankedTensorType(type_).element_type, ir.IndexType):
            continue  # neither dialect has them
        attributes = {attribute: op.attributes["value"]}
        new = ir.Operation.create(
            name, results=[type_], attributes=attributes, loc=op.location, ip=ir.InsertionPoint(op)
        )
        op.results[0].replace_all_uses_with(new.result)
        op.erase()
