"""Lower dynamic-size operations that StableHLO's own conversion to linalg leaves."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import producer, replace
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


def _concatenate(op: ir.Operation, emit: ArithOps) -> None:
    """Make a vector of sizes of its elements, which are then known wherever one of them is read."""
    kind = ir.RankedTensorType(op.results[0].type)
    integers = isinstance(kind.element_type, ir.IntegerType) and kind.element_type.is_signless
    static = all(ir.RankedTensorType(value.type).has_static_shape for value in (*op.operands, op.results[0]))
    if kind.rank != 1 or not integers or not static or kind.get_dim_size(0) > _MOST_SIZES:
        return
    elements = [
        _element(emit, part, position, kind.element_type)
        for part in op.operands
        for position in range(ir.RankedTensorType(part.type).get_dim_size(0))
    ]
    replace(op, emit.value("tensor.from_elements", kind, *elements))


_MOST_SIZES = 8
"""The rank up to which vectors of integers are taken for shapes."""


def _element(emit: ArithOps, part: ir.Value, position: int, kind: ir.Type) -> ir.Value:
    rank = 1
    if producer(part) == "stablehlo.reshape" and ir.RankedTensorType(part.type).get_dim_size(0) == 1:
        part = part.owner.operands[0]
        rank = ir.RankedTensorType(part.type).rank
    return emit.value("tensor.extract", kind, part, *[emit.index(position)] * rank)


_LOWERINGS = {
    "stablehlo.concatenate": _concatenate,
    "stablehlo.get_dimension_size": _get_dimension_size,
    "stablehlo.dynamic_reshape": _dynamic_reshape,
    "stablehlo.dynamic_broadcast_in_dim": _dynamic_broadcast,
}


@rewrite("fx-importer-stablehlo-sizes-to-tensor", ops=_LOWERINGS, emitter=ArithOps)
def dynamic_sizes_to_tensor(op: ir.Operation, emit: ArithOps) -> None:
    """Read sizes by ``tensor.dim``, reshape by ``tensor.reshape``, and mark the axes that a broadcast expands.

    Concatenations of sizes are ``tensor.from_elements``. A dynamic operand size is assumed to equal the result size: an
    exported program has no others.
    """
    _LOWERINGS[op.name](op, emit)
