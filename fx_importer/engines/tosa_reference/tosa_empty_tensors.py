"""Tensors without elements, which TOSA lacks: a call of a dynamic function with a size of zero has them."""

from __future__ import annotations

from collections.abc import Callable

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import is_used, producer, replace, terminator, update_function_type
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.walk import operations


def is_empty(value: ir.Value) -> bool:
    """Return whether a tensor of static sizes has no elements."""
    type_ = value.type
    return isinstance(type_, ir.RankedTensorType) and type_.has_static_shape and 0 in type_.shape


def fold_empty(function: func_d.FuncOp) -> None:
    """Replace operations on empty tensors of ``function``; those that it returns are ``tensor.empty``.

    Raises:
        UsageError: for an operation without a value for no elements, such as a maximum.
    """
    for op in operations(function.operation):
        if op.name.startswith("tosa.") and any(map(is_empty, op.operands)) and not all(map(is_empty, op.results)):
            if op.name not in _VALUES:
                raise UsageError(f"{op.name} reads a tensor without elements, and TOSA has none; run on the JIT")
            replace(op, _VALUES[op.name](op))
    end = terminator(function.entry_block)
    for position, value in enumerate(end.operands):
        if is_empty(value):
            end.operands[position] = TosaOps.before(end).value("tensor.empty", value.type)
    _erase_unused(function.entry_block)


def _erase_unused(block: ir.Block) -> None:
    """Erase the operations of ``block``, and of regions in it, with results that are empty and none that is used."""
    for op in reversed([*block.operations]):
        if op.name.startswith("tosa.") and any(map(is_empty, op.results)) and not any(map(is_used, op.results)):
            op.erase()
        else:
            for region in op.regions:
                for inner in region.blocks:
                    _erase_unused(inner)


def drop_empty_results(function: func_d.FuncOp) -> None:
    """Remove the results without elements from ``function``."""
    end = terminator(function.entry_block)
    kept = [at for at, value in enumerate(end.operands) if not is_empty(value)]
    if len(kept) < len(end.operands):
        names = [function.attributes["res_attrs"][at] for at in kept] if "res_attrs" in function.attributes else []
        dropped = [value.owner for value in end.operands if is_empty(value)]
        with function.context, function.location:
            func_d.ReturnOp([end.operands[at] for at in kept], ip=ir.InsertionPoint(end))
            end.operation.erase()
            for op in dropped:
                op.erase()
            if "res_attrs" in function.attributes:
                function.attributes["res_attrs"] = ir.ArrayAttr.get(names)
            update_function_type(function)


def _splat(op: ir.Operation, number: int) -> ir.Value:
    type_ = ir.RankedTensorType(op.results[0].type)
    text = str(bool(number)).lower() if str(type_.element_type) == "i1" else str(number)
    if isinstance(type_.element_type, ir.FloatType):
        text += ".0"
    emit = TosaOps.before(op)
    return emit.const(emit.attribute(f"dense<{text}> : {type_}"))


def _concat(op: ir.Operation) -> ir.Value:
    left = [operand for operand in op.operands if not is_empty(operand)]
    return TosaOps.before(op).op("tosa.concat", [op.results[0].type], left, {"axis": op.attributes["axis"]}).result


def _pad(op: ir.Operation) -> ir.Value:
    constant = op.operands[2]
    assert producer(constant) == "tosa.const"
    value = ir.DenseElementsAttr(constant.owner.attributes["values"]).get_splat_value()
    return TosaOps.before(op).const(ir.DenseElementsAttr.get_splat(op.results[0].type, value))


def _lowest(op: ir.Operation) -> ir.Value:
    """Return the least int32, for the position of the last of no writes, or zeros that only empty tensors depend on.

    Raises:
        UsageError: for other values: eager PyTorch raises for a maximum of no elements.
    """
    if all(is_empty(result) for use in op.results[0].uses for result in use.owner.results):  # as in a softmax
        return _splat(op, 0)
    if str(ir.RankedTensorType(op.results[0].type).element_type) != "i32":
        raise UsageError(f"{op.name} over no elements has no value in TOSA; run on the JIT")
    return _splat(op, -(2**31))


_VALUES: dict[str, Callable[[ir.Operation], ir.Value]] = {
    "tosa.reduce_sum": lambda op: _splat(op, 0),
    "tosa.reduce_any": lambda op: _splat(op, 0),
    "tosa.reduce_all": lambda op: _splat(op, 1),
    "tosa.reduce_product": lambda op: _splat(op, 1),
    "tosa.matmul": lambda op: _splat(op, 0),
    "tosa.concat": _concat,
    "tosa.pad": _pad,
    "tosa.scatter": lambda op: op.operands[0],
    "tosa.reduce_max": _lowest,
    "tosa.gather": lambda op: _splat(op, 0),  # places of the rows that no write selects
}
"""Values that operations have, though an operand has no elements."""
