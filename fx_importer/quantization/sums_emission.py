"""Sums of products of integers in linalg and StableHLO."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.lowerings.linalg import LinalgEmitter
from fx_importer.lowerings.stablehlo import StablehloEmitter
from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.linalg import LinalgOps


def emit_integer_dot(emit: StablehloEmitter, a: ir.Value, b: ir.Value, batches: int, inner: int) -> ir.Value:
    """Emit products over the last axis of ``a`` and the axis ``inner`` of ``b``; the first ``batches`` are shared."""
    if emit.element(emit.results[0]) == "i64":
        a, b = emit.cast(a, "i64"), emit.cast(b, "i64")
    numbers = stablehlo_d.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(range(batches)),
        rhs_batching_dimensions=list(range(batches)),
        lhs_contracting_dimensions=[batches + 1],
        rhs_contracting_dimensions=[inner],
        context=emit.context,
    )
    return emit.op("stablehlo.dot_general", list(emit.results), [a, b], {"dot_dimension_numbers": numbers}).result


def emit_integer_matmul(
    emit: LinalgEmitter, name: str, a: ir.Value, b: ir.Value, result: ir.Type, attributes: dict[str, ir.Attribute]
) -> ir.Value:
    """Emit a named operation that adds products of integers, extended to the type of the result, to zeros.

    A dynamic size of the result is the size of ``a`` along the same axis.
    """
    kind = emit.element(result)

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        left, right = (inside.value("arith.extsi", kind, element) for element in elements[:2])
        product = inside.value("arith.muli", kind, left, right)
        return [inside.value("arith.addi", kind, elements[2], product)]

    sizes = [emit.linalg.size(a, axis) if size is None else size for axis, size in enumerate(emit.shape(result))]
    zeros = emit.linalg.fill_with_zeros(emit.linalg.empty(sizes, ir.RankedTensorType(result).element_type))
    return emit.linalg.structured(
        name, [a, b], [zeros], body, attributes | {"operandSegmentSizes": emit.segments(2, 1)}
    )[0]
