"""Transposes around operations that ``tosa-reduce-transposes`` does not pass, such as pads and rescales."""

from __future__ import annotations

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, replace
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.resources import resource_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.tosa.transposed_weights import transposed_resource

Order = tuple[int, ...]
"""A permutation of axes, as ``perms`` of ``tosa.transpose``."""

_ELEMENTWISE = frozenset(
    f"tosa.{name}"
    for name in (
        *("abs", "add", "arithmetic_right_shift", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cast"),
        *("ceil", "clamp", "clz", "cos", "equal", "erf", "exp", "floor", "greater", "greater_equal", "identity"),
        *("intdiv", "log", "logical_and", "logical_left_shift", "logical_not", "logical_or", "logical_right_shift"),
        *("logical_xor", "maximum", "minimum", "mul", "negate", "pow", "reciprocal", "rescale", "rsqrt", "select"),
        *("sigmoid", "sin", "sub", "table", "tanh"),
    )
)
_LEADING = {"tosa.mul": 2, "tosa.negate": 1, "tosa.pad": 1, "tosa.rescale": 1, "tosa.slice": 1, "tosa.table": 1}
"""The number of operands that are tensors in the order of axes of the result; all for other operations."""
_OF_AXIS = frozenset(("tosa.concat", "tosa.reduce_max", "tosa.reduce_min", "tosa.reduce_sum"))
_OF_SIZES = {"tosa.pad": (1,), "tosa.slice": (1, 2)}
"""The operands that are sizes by axis."""
_MOVED = _ELEMENTWISE | _OF_AXIS | frozenset(_OF_SIZES)


@rewrite("fx-importer-remove-tosa-transposes")
def remove_tosa_transposes(module: ir.Operation) -> None:
    """Compute in another order of axes what is transposed before and after, if no transpose is left.

    So convolutions, which have channels last, and the operations between them are in one order.
    """
    orders = {_order(op) for op in operations(module, {"tosa.transpose"})}
    for order in sorted(orders):
        if movable := _movable(module, order):
            for op in operations(module, _MOVED):
                if op.results[0] in movable:
                    _reorder(op, order)
            for op in operations(module, {"tosa.transpose"}):
                if op.operands[0] in movable and _order(op) == order:
                    replace(op, op.operands[0])


def _movable(module: ir.Operation, order: Order) -> set[ir.Value]:
    """Return the values that can have their axes in ``order`` without a transpose: the largest such set."""
    movable = _after_sources(module, order)
    pending = list(movable)
    while pending:
        value = pending.pop()
        if value in movable and not _fits(value, movable, order):
            movable.discard(value)
            pending += [tensor for tensor in _tensors(value.owner) if tensor in movable]
            pending += [result for use in value.uses for result in use.owner.results if result in movable]
    return movable


def _after_sources(module: ir.Operation, order: Order) -> set[ir.Value]:
    """Return the results of operations that can move, and follow transposes or reshapes without others between."""
    movable = set[ir.Value]()
    pending = [op.results[0] for op in operations(module, {"tosa.transpose", "tosa.reshape"})]
    pending = [value for value in pending if _has_order(value.type, order) and _is_source(value, movable, order)]
    while pending:
        for use in pending.pop().uses:
            op = use.owner
            if op.name not in _MOVED or op.results[0] in movable:
                continue
            if _has_order(op.results[0].type, order) and not _by_channel(op):
                movable.add(op.results[0])
                pending.append(op.results[0])
    return movable


def _fits(value: ir.Value, movable: set[ir.Value], order: Order) -> bool:
    return all(_is_source(tensor, movable, order) for tensor in _tensors(value.owner)) and all(
        _is_reader(use.owner, use.operand_number, value, movable, order) for use in value.uses
    )


def _is_source(operand: ir.Value, movable: set[ir.Value], order: Order) -> bool:
    """Return whether ``operand`` is there in ``order``."""
    if operand in movable or set(ir.RankedTensorType(operand.type).shape) == {1}:
        return True
    if producer(operand) in ("tosa.reshape", "tosa.const"):
        return _has_order(operand.type, order) and _keeps_elements(operand, order)
    return producer(operand) == "tosa.transpose" and _composed(_order(operand.owner), order) == tuple(range(len(order)))


def _keeps_elements(value: ir.Value, order: Order) -> bool:
    """Return whether elements stay where they are in memory with the axes of ``value`` in ``order``."""
    type_ = ir.RankedTensorType(value.type)
    kept = [axis for axis in order if type_.shape[axis] != 1]
    return type_.has_static_shape and kept == sorted(kept)


def _is_reader(user: ir.Operation, number: int, value: ir.Value, movable: set[ir.Value], order: Order) -> bool:
    """Return whether ``user`` takes ``value`` in ``order``."""
    if user.name == "tosa.transpose":
        return _order(user) == order
    if user.name == "tosa.reshape":
        return _keeps_elements(value, order)
    return len(user.results) == 1 and user.results[0] in movable and number < len(_tensors(user))


def _reorder(op: ir.Operation, order: Order) -> None:
    """Let ``op`` compute with its axes in ``order``."""
    emit = TosaOps(ir.InsertionPoint(op), op.location)
    for number, tensor in enumerate(_tensors(op)):
        if producer(tensor) == "tosa.transpose":
            op.operands[number] = tensor.owner.operands[0]
        elif producer(tensor) == "tosa.const" and (constant := _reordered_resource(tensor, order)) is not None:
            op.operands[number] = emit.const(constant)
        elif producer(tensor) in ("tosa.reshape", "tosa.const"):
            kind = _reordered(tensor.type, order)
            shape = emit.const_shape(ir.RankedTensorType(kind).shape)
            op.operands[number] = emit.op("tosa.reshape", [kind], [tensor, shape]).result
    if op.name in _OF_AXIS:
        axis = ir.IntegerAttr(op.attributes["axis"])
        op.attributes["axis"] = ir.IntegerAttr.get(axis.type, order.index(axis.value))
    for number in _OF_SIZES.get(op.name, ()):
        sizes = np.array(ir.DenseIntElementsAttr(op.operands[number].owner.attributes["values"]))
        by_axis = sizes.reshape(len(order), -1)[list(order)]
        op.operands[number] = emit.const_shape(by_axis.reshape(-1).tolist())
    op.results[0].set_type(_reordered(op.results[0].type, order))


def _reordered_resource(value: ir.Value, order: Order) -> ir.Attribute | None:
    """Return the resource that the constant ``value`` holds, with its axes in ``order``; None if it holds none."""
    values, type_ = resource_of(value.owner, "values"), ir.RankedTensorType(value.type)
    if values is None:
        return None
    return transposed_resource(values, tuple(type_.shape), order, _reordered(type_, order))


def _tensors(op: ir.Operation) -> list[ir.Value]:
    return list(op.operands)[: _LEADING.get(op.name)]


def _by_channel(op: ir.Operation) -> bool:
    """Return whether ``op`` reads other things by its last axis, or sizes that are not constant."""
    if op.name == "tosa.rescale":
        return ir.BoolAttr(op.attributes["per_channel"]).value
    return any(producer(op.operands[number]) != "tosa.const_shape" for number in _OF_SIZES.get(op.name, ()))


def _has_order(type_: ir.Type, order: Order) -> bool:
    return isinstance(type_, ir.RankedTensorType) and type_.rank == len(order)


def _order(op: ir.Operation) -> Order:
    return tuple(ir.DenseI32ArrayAttr(op.attributes["perms"]))


def _composed(first: Order, then: Order) -> Order:
    return tuple(first[axis] for axis in then)


def _reordered(type_: ir.Type, order: Order) -> ir.Type:
    old = ir.RankedTensorType(type_)
    unknown = ir.Location.unknown(type_.context)
    return ir.RankedTensorType.get([old.shape[axis] for axis in order], old.element_type, loc=unknown)
