"""What operations of ``shape`` and ``tensor`` say of sizes and numbers. A handler returns whether it took the one.

What an operation makes is known from then on; it is spelled where something else takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.stablehlo.dimension_sizes import Extents, Shape
from fx_importer.rewrites.stablehlo.integer_emitter import IntegerEmitter
from fx_importer.rewrites.stablehlo.scalar_values import Scalars
from fx_importer.rewrites.stablehlo.size_polynomials import Atoms, Integer, constant, product


class Values(Protocol):
    """What is known of the values of a function."""

    integers: dict[ir.Value, Integer]
    extents: Extents
    scalars: Scalars
    atoms: Atoms

    def tensor(self, value: ir.Value, emit: IntegerEmitter) -> ir.Value | None: ...
    def know(self, value: ir.Value, number: ir.Value) -> None: ...
    def stand_in(self, value: ir.Value, tensor: ir.Value, integer: Integer | None = None) -> None: ...


def _dim(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    axis = this.integers[op.operands[1]].constant
    if axis is None:
        return False
    this.integers[op.results[0]] = this.extents.along(op.operands[0], axis)
    return True


def _shape_of(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    this.extents.shapes[op.results[0]] = this.extents.of(op.operands[0])
    return True


def _const_shape(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    sizes = ir.DenseIntElementsAttr(op.attributes["shape"])
    this.extents.shapes[op.results[0]] = tuple(constant(sizes[i]) for i in range(len(sizes)))
    return True


def _broadcast(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    shapes = [this.extents.held(operand) for operand in op.operands]
    total: Shape = ()
    for shape in shapes:
        if shape is None:
            return False
        rank = max(len(total), len(shape))
        a, b = ((constant(1),) * (rank - len(each)) + each for each in (total, shape))
        total = tuple(this.atoms.computed("broadcast", *each) for each in zip(a, b, strict=True))
    this.extents.shapes[op.results[0]] = total
    return True


def _num_elements(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    if (shape := this.extents.held(op.operands[0])) is None:
        return False
    this.integers[op.results[0]] = product(shape)
    return True


def _from_elements(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    kind = ir.RankedTensorType(op.results[0].type)
    if kind.rank == 1 and all(operand in this.integers for operand in op.operands):
        shape = tuple(this.integers[operand] for operand in op.operands)
        this.extents.shapes[op.results[0]] = shape
        if len(shape) == 1:
            this.scalars.tell(op.results[0], shape[0])
        return True
    tensors = [this.tensor(operand, emit) or operand for operand in op.operands]
    if kind.rank == 0:
        this.stand_in(op.results[0], tensors[0], this.integers.get(op.operands[0]))
        return True
    ones = [emit.stablehlo("reshape", f"tensor<1x{kind.element_type}>", each) for each in tensors]
    dimension = {"dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64, emit.context), 0)}
    row = emit.op("stablehlo.concatenate", [f"tensor<{len(ones)}x{kind.element_type}>"], ones, dimension).result
    op.results[0].replace_all_uses_with(emit.stablehlo("reshape", kind, row) if kind.rank > 1 else row)
    return True


def _extract(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    source, *indices = op.operands
    held, at = this.extents.held(source) if len(indices) == 1 else None, [this.integers[each] for each in indices]
    if held is not None and at[0].constant is not None:
        this.integers[op.results[0]] = held[at[0].constant]
        return True
    element = ir.RankedTensorType(source.type).element_type
    if indices:
        sizes = {"slice_sizes": ir.DenseI64ArrayAttr.get([1] * len(indices), context=emit.context)}
        ones = f"tensor<{'1x' * len(indices)}{element}>"
        starts = [emit.number(each) for each in at]
        piece = emit.op("stablehlo.dynamic_slice", [ones], [source, *starts], sizes).result
        source = emit.stablehlo("reshape", f"tensor<{element}>", piece)
    this.know(op.results[0], source)
    return True


def _cast(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    (source,), (result,) = op.operands, op.results
    kind = ir.RankedTensorType(result.type)
    if source in this.extents.shapes:
        this.extents.shapes[result] = this.extents.shapes[source]
    elif kind.has_static_shape:
        result.replace_all_uses_with(emit.stablehlo("reshape", kind, source))
    else:
        shape = emit.shape(this.extents.of(source))
        result.replace_all_uses_with(emit.stablehlo("dynamic_reshape", kind, source, shape))
    return True


def _empty(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    """What is not initialized is zero."""
    kind = ir.RankedTensorType(op.results[0].type)
    if kind.has_static_shape or not isinstance(kind.element_type, (ir.IntegerType, ir.FloatType)):
        return False
    sizes = iter([this.integers[operand] for operand in op.operands])
    static = [None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
    shape = tuple(next(sizes) if size is None else constant(size) for size in static)
    zero = emit.dense("0" if isinstance(kind.element_type, ir.IntegerType) else "0.0", f"tensor<{kind.element_type}>")
    dims = {"broadcast_dimensions": ir.DenseI64ArrayAttr.get([], context=emit.context)}
    zeros = emit.op("stablehlo.dynamic_broadcast_in_dim", [kind], [zero, emit.shape(shape)], dims).result
    op.results[0].replace_all_uses_with(zeros)
    return True


def _nothing(this: Values, op: ir.Operation, emit: IntegerEmitter) -> bool:
    return True


HANDLERS: dict[str, Callable[[Values, ir.Operation, IntegerEmitter], bool]] = {
    "shape.broadcast": _broadcast,
    "shape.const_shape": _const_shape,
    "shape.const_witness": _nothing,
    "shape.cstr_broadcastable": _nothing,
    "shape.num_elements": _num_elements,
    "shape.shape_of": _shape_of,
    "tensor.cast": _cast,
    "tensor.dim": _dim,
    "tensor.empty": _empty,
    "tensor.extract": _extract,
    "tensor.from_elements": _from_elements,
}
