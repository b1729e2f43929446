"""Lower ``shape`` and ``tensor`` operations on sizes and scalars to StableHLO.

A handler returns whether it handled the operation. It records the computed value, and StableHLO is emitted only where a
kept operation uses it.
"""

from __future__ import annotations

from collections.abc import Callable

from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.stablehlo.dimension_sizes import Shape
from fx_importer.rewrites.stablehlo.integer_emitter import FunctionValues, IntegerEmitter
from fx_importer.symbolic.polynomials import constant, product


def _dim(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    axis = values.integers[op.operands[1]].constant
    if axis is None:
        return False
    values.integers[op.results[0]] = values.sizes.along(op.operands[0], axis)
    return True


def _shape_of(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    values.sizes.elements[op.results[0]] = values.sizes.shape_of(op.operands[0])
    return True


def _const_shape(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    sizes = ir.DenseIntElementsAttr(op.attributes["shape"])
    values.sizes.elements[op.results[0]] = tuple(constant(sizes[i]) for i in range(len(sizes)))
    return True


def _broadcast(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    shapes = [values.sizes.elements_of(operand) for operand in op.operands]
    total: Shape = ()
    for shape in shapes:
        if shape is None:
            return False
        rank = max(len(total), len(shape))
        a, b = ((constant(1),) * (rank - len(sizes)) + sizes for sizes in (total, shape))
        total = tuple(values.atoms.computed("broadcast", *pair) for pair in zip(a, b, strict=True))
    values.sizes.elements[op.results[0]] = total
    return True


def _num_elements(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    if (shape := values.sizes.elements_of(op.operands[0])) is None:
        return False
    values.integers[op.results[0]] = product(shape)
    return True


def _from_elements(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    kind = ir.RankedTensorType(op.results[0].type)
    if kind.rank == 1 and all(operand in values.integers for operand in op.operands):
        shape = tuple(values.integers[operand] for operand in op.operands)
        values.sizes.elements[op.results[0]] = shape
        if len(shape) == 1:
            values.scalars.set_value(op.results[0], shape[0])
        return True
    tensors = [values.tensor(operand, emit) or operand for operand in op.operands]
    if kind.rank == 0:
        values.replace(op.results[0], tensors[0], values.integers.get(op.operands[0]))
        return True
    ones = [emit.stablehlo("reshape", f"tensor<1x{kind.element_type}>", tensor) for tensor in tensors]
    row = emit.concatenate(ones, 0, f"tensor<{len(ones)}x{kind.element_type}>")
    op.results[0].replace_all_uses_with(emit.stablehlo("reshape", kind, row) if kind.rank > 1 else row)
    return True


def _extract(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    source, *indices = op.operands
    elements = values.sizes.elements_of(source) if len(indices) == 1 else None
    positions = [values.integers[index] for index in indices]
    if elements is not None and positions[0].constant is not None:
        values.integers[op.results[0]] = elements[positions[0].constant]
        return True
    element = ir.RankedTensorType(source.type).element_type
    if indices:
        sizes = {"slice_sizes": emit.array([1] * len(indices))}
        ones = f"tensor<{'1x' * len(indices)}{element}>"
        starts = [emit.number(position) for position in positions]
        piece = emit.op("stablehlo.dynamic_slice", [ones], [source, *starts], sizes).result
        source = emit.stablehlo("reshape", f"tensor<{element}>", piece)
    values.set_scalar(op.results[0], source)
    return True


def _cast(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    (source,), (result,) = op.operands, op.results
    kind = ir.RankedTensorType(result.type)
    if source in values.sizes.elements:
        values.sizes.elements[result] = values.sizes.elements[source]
    elif kind.has_static_shape:
        result.replace_all_uses_with(emit.stablehlo("reshape", kind, source))
    else:
        shape = emit.shape_tensor(values.sizes.shape_of(source))
        result.replace_all_uses_with(emit.stablehlo("dynamic_reshape", kind, source, shape))
    return True


def _empty(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    """Fill uninitialized tensors of dynamic shape with zeros."""
    kind = ir.RankedTensorType(op.results[0].type)
    if kind.has_static_shape or not isinstance(kind.element_type, (ir.IntegerType, ir.FloatType)):
        return False
    sizes = iter([values.integers[operand] for operand in op.operands])
    shape = tuple(next(sizes) if size is None else constant(size) for size in emit.shape(kind))
    text = "0" if isinstance(kind.element_type, ir.IntegerType) else "0.0"
    zero = emit.dense_constant(text, f"tensor<{kind.element_type}>")
    op.results[0].replace_all_uses_with(emit.broadcast_to(zero, emit.shape_tensor(shape), [], kind))
    return True


def _drop(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    return True


HANDLERS: dict[str, Callable[[FunctionValues, ir.Operation, IntegerEmitter], bool]] = {
    "shape.broadcast": _broadcast,
    "shape.const_shape": _const_shape,
    "shape.const_witness": _drop,
    "shape.cstr_broadcastable": _drop,
    "shape.num_elements": _num_elements,
    "shape.shape_of": _shape_of,
    "tensor.cast": _cast,
    "tensor.dim": _dim,
    "tensor.empty": _empty,
    "tensor.extract": _extract,
    "tensor.from_elements": _from_elements,
}
