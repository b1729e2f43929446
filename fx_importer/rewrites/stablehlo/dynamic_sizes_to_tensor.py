"""Lower dynamic-size operations that StableHLO's own conversion to linalg leaves."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.walk import rewrite


def _get_dimension_size(op: ir.Operation, emit: ArithOps) -> None:
    axis = emit.index(ir.IntegerAttr(op.attributes["dimension"]).value)
    size = emit.value("tensor.dim", "index", op.operands[0], axis)
    size = emit.value("arith.index_cast", "i32", size)
    replace(op, emit.value("tensor.from_elements", op.results[0].type, size))


def _dynamic_reshape(op: ir.Operation, emit: ArithOps) -> None:
    replace(op, emit.value("tensor.reshape", op.results[0].type, *op.operands))


def _dynamic_broadcast(op: ir.Operation, emit: ArithOps) -> None:
    kind = ir.RankedTensorType(op.operands[0].type)
    same = [axis for axis in range(kind.rank) if kind.is_dynamic_dim(axis) or kind.get_dim_size(axis) != 1]
    expanded = [axis for axis in range(kind.rank) if axis not in same]
    op.attributes["known_nonexpanding_dimensions"] = emit.array(same)
    op.attributes["known_expanding_dimensions"] = emit.array(expanded)


_LOWERINGS = {
    "stablehlo.get_dimension_size": _get_dimension_size,
    "stablehlo.dynamic_reshape": _dynamic_reshape,
    "stablehlo.dynamic_broadcast_in_dim": _dynamic_broadcast,
}


@rewrite("fx-importer-stablehlo-sizes-to-tensor", ops=_LOWERINGS, emitter=ArithOps)
def dynamic_sizes_to_tensor(op: ir.Operation, emit: ArithOps) -> None:
    """Read sizes by ``tensor.dim``, reshape by ``tensor.reshape``, and mark the axes that a broadcast expands.

    A dynamic operand size is assumed to equal the result size: an exported program has no others.
    """
    _LOWERINGS[op.name](op, emit)
