"""Comparisons of unsigned integers: the C++ lowering marks them as signed, which XLA refuses."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-unsigned-stablehlo-comparisons", ops=("stablehlo.compare",))
def unsigned_comparisons(op: ir.Operation) -> None:
    """Set the comparison type of unsigned operands to ``UNSIGNED``."""
    element = ir.RankedTensorType(op.operands[0].type).element_type
    if isinstance(element, ir.IntegerType) and element.is_unsigned:
        op.attributes["compare_type"] = ir.Attribute.parse("#stablehlo<comparison_type UNSIGNED>", op.context)
