"""Fill the tensors in which structured operations begin, in place of constants as large as their results."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-fill-results", ops=("arith.constant",))
def fill_results(op: ir.Operation) -> None:
    """Replace a constant of one repeated value by ``linalg.fill`` where a structured operation writes to it.

    The sum of a convolution whose bias is zero begins in such a constant, of the size of the result. Bufferization
    makes it a global and copies it, and few compilers see that its elements are zero.
    """
    type_ = op.results[0].type
    if not isinstance(type_, ir.RankedTensorType) or type_.rank == 0 or isinstance(type_.element_type, ir.ComplexType):
        return
    value = op.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
        return
    for use in [use for use in op.results[0].uses if _is_result(use)]:
        emit = LinalgOps.before(use.owner)
        scalar = emit.op("arith.constant", [type_.element_type], (), {"value": value.get_splat_value()}).result
        use.owner.operands[use.operand_number] = emit.fill(scalar, emit.empty(type_.shape, type_.element_type))


def _is_result(use: ir.OpOperand) -> bool:
    op = use.owner
    return op.name.startswith("linalg.") and use.operand_number >= len(op.operands) - len(op.results)
