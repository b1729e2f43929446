"""Products in half precision that add up in float32, as eager's do; StableHLO leaves it open how its own do."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter

_PRODUCTS = frozenset(("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"))


def accumulate_in_float32(module: ir.Operation) -> None:
    """Let products of matrices and convolutions of float16 and bfloat16 return float32, and convert that."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in _PRODUCTS:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    for op in found:
        kind = ir.RankedTensorType(op.results[0].type)
        if str(kind.element_type) not in ("f16", "bf16"):
            continue
        with op.location:
            wide = ir.RankedTensorType.get(kind.shape, ir.F32Type.get(op.context), kind.encoding)
        emit = Emitter(ir.InsertionPoint(op), op.location)
        attributes = {name: op.attributes[name] for name in op.attributes}
        product = emit.op(op.name, [wide], list(op.operands), attributes).result
        op.results[0].replace_all_uses_with(emit.value("stablehlo.convert", kind, product))
        op.erase()
