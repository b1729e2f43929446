"""Sizes that are not known, on the way from StableHLO to linalg: what its own conversion leaves."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, operations


def sizes_to_tensor(module: ir.Operation) -> None:
    """Read sizes by ``tensor.dim``, reshape by ``tensor.reshape``, and say which axes a broadcast stretches.

    A size of an operand that is not known is taken for that of the result: a program that was exported has no others.
    """
    for op in operations(module, _RULES):
        _RULES[op.name](op, Emitter(ir.InsertionPoint(op), op.location))


def _size(op: ir.Operation, emit: Emitter) -> None:
    number = ir.IntegerAttr.get(ir.IndexType.get(op.context), ir.IntegerAttr(op.attributes["dimension"]).value)
    axis = emit.op("arith.constant", ["index"], (), {"value": number}).result
    size = emit.value("tensor.dim", "index", op.operands[0], axis)
    _become(op, emit.value("tensor.from_elements", op.results[0].type, emit.value("arith.index_cast", "i32", size)))


def _reshape(op: ir.Operation, emit: Emitter) -> None:
    _become(op, emit.value("tensor.reshape", op.results[0].type, *op.operands))


def _broadcast(op: ir.Operation, emit: Emitter) -> None:
    kind = ir.RankedTensorType(op.operands[0].type)
    same = [axis for axis in range(kind.rank) if kind.is_dynamic_dim(axis) or kind.get_dim_size(axis) != 1]
    stretched = [axis for axis in range(kind.rank) if axis not in same]
    op.attributes["known_nonexpanding_dimensions"] = ir.DenseI64ArrayAttr.get(same, op.context)
    op.attributes["known_expanding_dimensions"] = ir.DenseI64ArrayAttr.get(stretched, op.context)


def _become(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()


_RULES = {
    "stablehlo.get_dimension_size": _size,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
}
