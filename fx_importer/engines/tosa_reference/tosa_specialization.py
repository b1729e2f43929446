"""Specialization of TOSA with dynamic sizes: a static copy for the sizes of a call, as the specification has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.engines.tosa_reference.tosa_empty_tensors import fold_empty
from fx_importer.mlir.bindings import ir, passmanager
from fx_importer.mlir.emit.emitter import producer, replace, update_function_type
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.walk import operations

_INFER = "builtin.module(func.func(tosa-infer-shapes))"


def specialize_tosa(
    module: ir.Module, shapes: Sequence[Sequence[int]], numbers: Sequence[int | None] = ()
) -> ir.Module:
    """Return a copy whose ``main`` takes tensors of ``shapes``. Values of integers are not used.

    Results without elements are ``tensor.empty``. Raises `UsageError` as `fold_empty` does.
    """
    copy = copy_module(module.operation)
    function = functions_of(copy)["main"]
    with copy.context, function.location:
        for argument, shape in zip(function.entry_block.arguments, shapes, strict=True):
            argument.set_type(ir.RankedTensorType.get(shape, argument.type.element_type))
        _infer(copy.operation)
        fold_empty(function)
        for op in operations(copy.operation, ("tosa.reshape", "tosa.slice")):
            result = ir.RankedTensorType(op.results[0].type)
            if result.has_static_shape:  # the specification has no inferred sizes, -1
                op.operands[len(op.operands) - 1] = TosaOps.before(op).const_shape(result.shape)
        update_function_type(function)
    copy.operation.verify()
    return copy


def _infer(module: ir.Operation) -> None:
    """Infer the sizes of all values. A computed size is known once the sizes of its tensor are: then again."""
    passes = passmanager.PassManager.parse(_INFER, module.context)
    passes.enable_verifier(False)  # operands are more static than the casts and the function's type say
    computed = operations(module, _COMPUTED)
    while True:
        passes.run(module)
        for cast in operations(module, ("tensor.cast",)):
            replace(cast, cast.operands[0])
        left = [op for op in computed if not _fold(op)]
        if not _size_empty_slices(module) and len(left) == len(computed):
            return
        computed = left


def _size_empty_slices(module: ir.Operation) -> bool:
    """Set the sizes of slices without elements, which MLIR does not infer; return whether there are any."""
    changed = False
    for op in operations(module, ("tosa.slice",)):
        whole, result = (ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0]))
        sizes = None if result.has_static_shape or not whole.has_static_shape else _elements(op.operands[2])
        if sizes is not None:
            sizes = [old if size < 0 else size for old, size in zip(whole.shape, sizes, strict=True)]
            if 0 in sizes:
                op.results[0].set_type(ir.RankedTensorType.get(sizes, result.element_type))
                changed = True
    return changed


def _fold(op: ir.Operation) -> bool:
    """Replace a computed size by a constant; return whether its operands are constants."""
    if op.name == "tosa.dim":
        type_, axis = ir.RankedTensorType(op.operands[0].type), ir.IntegerAttr(op.attributes["axis"]).value
        sizes = None if type_.is_dynamic_dim(axis) else [type_.get_dim_size(axis)]
    else:
        operands = [_elements(operand) for operand in op.operands]
        known = [operand for operand in operands if operand is not None]
        sizes = _COMPUTED[op.name](known) if len(known) == len(operands) else None
    if sizes is None:
        return False
    replace(op, TosaOps.before(op).const_shape(sizes))
    return True


def _elements(value: ir.Value) -> list[int] | None:
    """Return the elements of a ``tosa.const_shape``."""
    if producer(value) != "tosa.const_shape":
        return None
    values = ir.DenseIntElementsAttr(value.owner.attributes["values"])
    return [(values[i] + 2**63) % 2**64 - 2**63 for i in range(len(values))]  # the bindings read an index as unsigned


def _elementwise(compute: Callable[[int, int], int]) -> Callable[[Sequence[list[int]]], list[int]]:
    return lambda operands: [compute(a, b) for a, b in zip(*operands, strict=True)]


_COMPUTED: dict[str, Callable[[Sequence[list[int]]], list[int]]] = {
    "tosa.dim": lambda operands: [],
    "tosa.concat_shape": lambda operands: [size for operand in operands for size in operand],
    "tosa.add_shape": _elementwise(int.__add__),
    "tosa.sub_shape": _elementwise(int.__sub__),
    "tosa.mul_shape": _elementwise(int.__mul__),
    "tosa.div_floor_shape": _elementwise(int.__floordiv__),
    "tosa.div_ceil_shape": _elementwise(lambda a, b: -(-a // b)),
    "tosa.min_shape": _elementwise(min),
    "tosa.max_shape": _elementwise(max),
}
"""Shape operations, and what they compute from their operands."""
