"""Lower gathers, reversals and updates of slices whose sizes are dynamic; StableHLO's conversion leaves these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import Size, replace
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite

_NAMES = ("stablehlo.dynamic_gather", "stablehlo.dynamic_update_slice", "stablehlo.reverse")


@rewrite("fx-importer-stablehlo-slices-to-tensor", ops=_NAMES, emitter=LinalgOps)
def dynamic_slices_to_tensor(op: ir.Operation, emit: LinalgOps) -> None:
    """Replace the operators of `_NAMES`, reversals and updates only if a size is dynamic."""
    if op.name != "stablehlo.dynamic_gather" and all(
        ir.RankedTensorType(operand.type).has_static_shape for operand in op.operands
    ):
        return
    result = _LOWERINGS[op.name](emit, op)
    wanted = op.results[0].type
    replace(op, result if result.type == wanted else emit.value("tensor.cast", wanted, result))


def _reverse(emit: LinalgOps, op: ir.Operation) -> ir.Value:
    x = op.operands[0]
    sizes = emit.sizes(x)
    reversed_axes = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))

    def position(inside: LinalgOps, index: Sequence[ir.Value]) -> list[Size]:
        last = {axis: inside.index_op("subi", sizes[axis], 1) for axis in reversed_axes}
        return [inside.index_op("subi", last[axis], at) if axis in last else at for axis, at in enumerate(index)]

    return _read(emit, x, sizes, position)


def _dynamic_update_slice(emit: LinalgOps, op: ir.Operation) -> ir.Value:
    x, update, *starts = op.operands
    sizes = emit.sizes(update)
    offsets = [_start(emit, emit.extract(start), emit.size(x, axis), sizes[axis]) for axis, start in enumerate(starts)]
    return emit.insert_slice(update, x, offsets, sizes)


def _start(emit: LinalgOps, start: ir.Value, size: Size, part: Size) -> ir.Value:
    """Emit a start index, moved so that ``part`` elements from it are in an axis of ``size``."""
    last = emit.index_op("subi", size, part)
    index = emit.value("arith.index_cast", "index", start)
    return emit.index_op("maxsi", emit.index_op("minsi", index, last), 0)


def _dynamic_gather(emit: LinalgOps, op: ir.Operation) -> ir.Value:
    """Emit a gather. Names follow the specification."""
    x, indices, slice_sizes = op.operands
    numbers = stablehlo_d.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    vector_axis, rank = numbers.index_vector_dim, ir.RankedTensorType(op.results[0].type).rank
    parts = [
        emit.value("arith.index_cast", "index", emit.extract(slice_sizes, axis)) for axis in range(len(emit.shape(x)))
    ]
    static = emit.shape(op.results[0])
    left_out = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(parts)) if axis not in left_out]
    batch_axes = [axis for axis in range(rank) if axis not in numbers.offset_dims]
    indexed = [axis for axis in range(len(emit.shape(indices))) if axis != vector_axis]
    sizes: list[Size] = [0] * rank
    for axis, of_indices in zip(batch_axes, indexed, strict=True):
        sizes[axis] = emit.size(indices, of_indices)
    for axis, of_operand in zip(numbers.offset_dims, kept, strict=True):
        size = static[axis]
        sizes[axis] = parts[of_operand] if size is None else size

    def position(inside: LinalgOps, index: Sequence[ir.Value]) -> list[Size]:
        batch = [index[axis] for axis in batch_axes]
        starts: list[Size] = [0] * len(parts)
        for number, axis in enumerate(numbers.start_index_map):
            at: list[Size] = list(batch)
            if vector_axis < len(emit.shape(indices)):
                at.insert(vector_axis, number)
            starts[axis] = _start(inside, inside.extract(indices, *at), inside.size(x, axis), parts[axis])
        for axis, of_indices in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            starts[axis] = batch[of_indices - (of_indices > vector_axis)]
        for axis, of_operand in zip(numbers.offset_dims, kept, strict=True):
            starts[of_operand] = inside.index_op("addi", starts[of_operand], index[axis])
        return starts

    return _read(emit, x, sizes, position)


def _read(
    emit: LinalgOps,
    x: ir.Value,
    sizes: Sequence[Size],
    position: Callable[[LinalgOps, Sequence[ir.Value]], Sequence[Size]],
) -> ir.Value:
    """Emit a tensor of ``sizes`` with the elements of ``x`` at the ``position`` of each index."""

    def element(inside: LinalgOps, _: Sequence[ir.Value]) -> list[ir.Value]:
        axes = ({"dim": inside.i64(axis)} for axis in range(len(sizes)))
        index = [inside.op("linalg.index", ["index"], (), attributes).result for attributes in axes]
        return [inside.extract(x, *position(inside, index))]

    return emit.elementwise([], [emit.empty(sizes, ir.RankedTensorType(x.type).element_type)], element)[0]


_LOWERINGS: dict[str, Callable[[LinalgOps, ir.Operation], ir.Value]] = {
    "stablehlo.dynamic_gather": _dynamic_gather,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.reverse": _reverse,
}
