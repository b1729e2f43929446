"""Fold the sizes that reshapes compute by division."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, producer, replace
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-fold-size-divisions", ops=("arith.divsi",))
def fold_size_divisions(op: ir.Operation) -> None:
    """Replace the division of a multiple of a size: ``(64 * n) / 64`` by ``n``, ``(64 * n) / 32`` by ``2 * n``.

    Each reshape of an axis of dynamic size computes the new size from the number of elements. MLIR folds no such
    division; bufferization compares the sizes of slices, and its time grows with the square of such a chain.
    """
    numerator, divisor = op.operands
    if not isinstance(numerator.type, ir.IndexType) or producer(divisor) != "arith.constant":
        return
    size, factor = _multiple(numerator)
    number = ir.IntegerAttr(divisor.owner.attributes["value"]).value
    if number <= 0 or factor % number != 0:
        return
    if (quotient := factor // number) != 1:
        map_ = ir.AffineMap.get(0, 1, [ir.AffineExpr.get_symbol(0, op.context) * quotient], op.context)
        attributes = {"map": ir.AffineMapAttr.get(map_)}
        size = Emitter.before(op).op("affine.apply", [size.type], [size], attributes).result
    replace(op, size)


def _multiple(value: ir.Value) -> tuple[ir.Value, int]:
    """Return a size and the factor that ``value`` is a multiple of it by, through a chain of ``affine.apply``."""
    factor = 1
    while producer(value) == "affine.apply":
        scale = size_scale(ir.AffineMapAttr(value.owner.attributes["map"]).value)
        if scale is None:
            break
        factor *= scale
        value = value.owner.operands[0]
    return value, factor


def size_scale(map_: ir.AffineMap) -> int | None:
    """Return c if ``map_`` computes ``n * c``, else None."""
    expression = map_.results[0]
    if map_.n_inputs != 1 or not isinstance(expression, ir.AffineMulExpr):
        return None
    constant = expression.rhs
    is_input = isinstance(expression.lhs, ir.AffineSymbolExpr | ir.AffineDimExpr)
    return constant.value if is_input and isinstance(constant, ir.AffineConstantExpr) else None
