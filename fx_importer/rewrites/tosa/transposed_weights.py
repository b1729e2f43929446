"""Transposes of weights folded into resources in the layout of TOSA's operators.

``tosa-layerwise-constant-fold`` folds them too, but into a ``dense`` attribute, which costs another copy and is printed
element by element.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.elided_weights import transposed_handle
from fx_importer.mlir.emit.emitter import Emitter, is_used, producer, replace, update_function_type
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.resources import key_of, resource, resource_bytes, resource_of
from fx_importer.mlir.walk import operations, rewrite

_WIDTHS = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1, "f8E4M3FN": 1, "f8E5M2": 1}
"""Sizes of elements in bytes."""
_RESHAPES = ("tosa.reshape", "tensor.cast")
"""Operations that keep the elements and their order."""


@rewrite("fx-importer-transpose-tosa-arguments")
def transpose_tosa_arguments(module: ir.Operation) -> None:
    """Move transposes of arguments of private functions to their callers, where transposes of weights fold."""
    calls: dict[str, list[ir.Operation]] = defaultdict(list)
    for call in operations(module, {"func.call"}):
        calls[ir.FlatSymbolRefAttr(call.attributes["callee"]).value].append(call)
    if not calls:
        return
    functions = [op for op in module.regions[0].blocks[0].operations if isinstance(op, func_d.FuncOp)]
    for function in reversed(functions):  # callees come after their callers
        if callers := calls[function.name.value] if function.regions[0].blocks else []:
            for position, argument in enumerate(function.arguments):
                _transpose_outside(argument, position, callers)
            update_function_type(function)
    transpose_tosa_weights(module)


def _transpose_outside(argument: ir.Value, position: int, callers: Sequence[ir.Operation]) -> None:
    uses = [use.owner for use in argument.uses]
    orders = {use.attributes["perms"] for use in uses if use.name == "tosa.transpose"}
    if len(orders) != 1 or any(use.name != "tosa.transpose" for use in uses):
        return
    type_, order = uses[0].results[0].type, orders.pop()
    argument.set_type(type_)
    for user in uses:
        user.results[0].replace_all_uses_with(argument)
        user.erase()
    for call in callers:
        emit = Emitter.before(call)
        transposed = emit.op("tosa.transpose", [type_], [call.operands[position]], {"perms": order}).result
        call.operands[position] = transposed


@rewrite("fx-importer-transpose-tosa-weights")
def transpose_tosa_weights(module: ir.Operation) -> None:
    """Fold every ``tosa.transpose`` of a resource, reshaped or not, into a constant; equal ones share a resource."""
    transposes = operations(module, ("tosa.transpose",))
    weights = [op for op in transposes if producer(_unshaped(op.operands[0])) == "tosa.const"]
    made: dict[tuple[ir.Attribute, tuple[int, ...], tuple[int, ...]], ir.Attribute] = {}
    for op in weights:
        constant = _unshaped(op.operands[0]).owner
        values, order = resource_of(constant, "values"), tuple(ir.DenseI32ArrayAttr(op.attributes["perms"]))
        if values is None or not ir.RankedTensorType(op.results[0].type).has_static_shape:
            continue
        shape = tuple(ir.RankedTensorType(op.operands[0].type).shape)
        key = values, shape, order
        if key not in made:
            transposed = transposed_resource(values, shape, order, op.results[0].type)
            if transposed is None:
                continue
            made[key] = transposed
        source = op.operands[0]
        folded = TosaOps(ir.InsertionPoint(op), constant.location).const(made[key])
        replace(op, folded)
        _erase_unused(source)


def _erase_unused(value: ir.Value) -> None:
    """Erase the constant that ``value`` is, or is a reshape of, as far as nothing else uses it."""
    while not is_used(value):
        op = value.owner
        if producer(value) not in _RESHAPES:
            op.erase()
            return
        value = op.operands[0]
        op.erase()


def _unshaped(value: ir.Value) -> ir.Value:
    """Return the source of ``value`` before any reshapes."""
    while producer(value) in _RESHAPES:
        value = value.owner.operands[0]
    return value


def transposed_resource(
    values: ir.Attribute, shape: tuple[int, ...], order: tuple[int, ...], to: ir.Type
) -> ir.Attribute | None:
    """Return ``values``, in ``shape``, with its axes in another ``order``; None where it cannot be read."""
    if (handle := transposed_handle(values, shape, order, to)) is not None:
        return handle
    width = _WIDTHS.get(str(ir.RankedTensorType(values.type).element_type))
    if width is None:
        return None
    data = resource_bytes(values, math.prod(shape) * width)
    if data is None:
        return None
    # A bytearray's pages are mapped as they are written; numpy's arrays ask for huge pages, which takes twice as long.
    transposed = np.frombuffer(bytearray(data.nbytes), f"i{width}").reshape(ir.RankedTensorType(to).shape)
    np.copyto(transposed, data.view(f"i{width}").reshape(shape).transpose(order))
    return resource(transposed, f"{key_of(values)}.transposed", to)
