"""Lower ``stablehlo.scatter`` and ``stablehlo.sort`` to loops; ``stablehlo-legalize-to-linalg`` leaves them alone.

Their regions become ``linalg.generic`` bodies, in which that conversion lowers rank-0 tensor operations to scalar
operations; `fx_importer.rewrites.linalg.linalg_no_ops` inlines them into the loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import Size, replace
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.linalg.merge_sort import sort


@rewrite("fx-importer-scatter-sort-to-loops", ops=("stablehlo.scatter", "stablehlo.sort"), emitter=LoopEmitter)
def scatter_sort_to_loops(op: ir.Operation, emit: LoopEmitter) -> None:
    """Replace every ``stablehlo.scatter`` whose indices are signed, and every ``stablehlo.sort``."""
    if op.name == "stablehlo.sort":
        replace(op, *_sort(op, emit))
    elif not emit.element(op.operands[len(op.results)]).startswith("ui"):
        replace(op, *_scatter(op, emit))


def _sort(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """Emit a merge sort. The region returns whether the first of two elements must come before the other."""
    block = op.regions[0].blocks[0]

    def in_order(emit: LoopEmitter, pairs: Sequence[tuple[ir.Value, ir.Value]]) -> ir.Value:
        (swapped,) = _apply(block, [element for first, other in pairs for element in (other, first)], emit)
        return emit.value("arith.xori", "i1", swapped, emit.constant_integer(1, swapped.type))

    return sort(list(op.operands), ir.IntegerAttr(op.attributes["dimension"]).value, in_order, emit)


def _apply(block: ir.Block, scalars: Sequence[ir.Value], emit: LoopEmitter) -> list[ir.Value]:
    """Emit a rank-0 ``linalg.generic`` that applies ``block``, which takes rank-0 tensors, to ``scalars``."""
    last = block.operations[len(block.operations) - 1]
    results = [emit.empty([], ir.RankedTensorType(operand.type).element_type) for operand in last.operands]

    def body(inside: LoopEmitter, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        tensors = [inside.as_tensor(element) for element in elements[: len(scalars)]]
        return [inside.extract(argument) for argument in inside.inline_block(block, tensors)]

    return [
        emit.extract(result)
        for result in emit.elementwise([emit.as_tensor(scalar) for scalar in scalars], results, body)
    ]


def _scatter(op: ir.Operation, emit: LoopEmitter) -> Sequence[ir.Value]:
    """Emit loops over the updates, in order. An out-of-bounds update writes an element's current value back.

    Names follow the specification: the index of an element is its window's index, given by the scatter indices and the
    batching axes, plus its index within the window.
    """
    numbers = stablehlo_d.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count, block = len(op.results), op.regions[0].blocks[0]
    operands = list(op.operands)
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    sizes, update_sizes = emit.sizes(inputs[0]), emit.sizes(updates[0])
    window_axes = list(numbers.update_window_dims)
    scatter_axes = [axis for axis in range(len(update_sizes)) if axis not in window_axes]
    collapsed = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    kept = [axis for axis in range(len(sizes)) if axis not in collapsed]
    if 0 in sizes:
        return inputs

    def write_window(emit: LoopEmitter, scatter_index: Sequence[ir.Value], state: Sequence[ir.Value]):
        scatter_index = scatter_index[len(non_empty) :]
        start = _window_start(numbers, indices, scatter_index, emit)

        def write(emit: LoopEmitter, window_index: Sequence[ir.Value], state: Sequence[ir.Value]):
            update = dict(zip([*scatter_axes, *window_axes], [*scatter_index, *window_index], strict=True))
            window = dict(zip(kept, window_index, strict=True))
            position = [_sum(start.get(axis), window.get(axis), emit) for axis in range(len(sizes))]
            position, inside = _clamp(position, sizes, emit)
            old = [emit.extract(tensor, *position) for tensor in state]
            elements = [emit.extract(tensor, *(update[axis] for axis in sorted(update))) for tensor in updates]
            new = _apply(block, [*old, *elements], emit)
            if inside is not None:
                new = [emit.select_value(inside, *pair) for pair in zip(new, old, strict=True)]
            return [emit.insert(value, tensor, *position) for value, tensor in zip(new, state, strict=True)]

        return emit.nest([update_sizes[axis] for axis in window_axes], state, write)

    # Loops with one iteration, or none for an input without elements.
    non_empty = [emit.index_op("minsi", size, 1) for size in sizes if isinstance(size, ir.Value)]
    return emit.nest([*non_empty, *(update_sizes[axis] for axis in scatter_axes)], inputs, write_window)


def _window_start(
    numbers: stablehlo_d.ScatterDimensionNumbers,
    indices: ir.Value,
    scatter_index: Sequence[ir.Value],
    emit: LoopEmitter,
) -> dict[int, ir.Value]:
    """Emit the start of an update's window, by input axis; missing axes start at 0."""
    vector_axis = numbers.index_vector_dim
    start: dict[int, ir.Value] = {}
    for number, axis in enumerate(numbers.scattered_dims_to_operand_dims):
        position: list[Size] = list(scatter_index)
        if vector_axis < ir.RankedTensorType(indices.type).rank:
            position.insert(vector_axis, number)
        start[axis] = emit.value("arith.index_cast", "index", emit.extract(indices, *position))
    for axis, of_indices in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        start[axis] = scatter_index[of_indices - (of_indices > vector_axis)]
    return start


def _sum(start: ir.Value | None, offset: ir.Value | None, emit: LoopEmitter) -> Size:
    if start is None or offset is None:
        return start or offset or 0
    return emit.index_op("addi", start, offset)


def _clamp(
    position: Sequence[Size], sizes: Sequence[Size], emit: LoopEmitter
) -> tuple[Sequence[Size], ir.Value | None]:
    """Emit whether ``position`` is in bounds, and a position that always is; no check for a position without axes."""
    inside: ir.Value | None = None
    for index, size in zip(position, sizes, strict=True):
        one = emit.compare_integers("ult", emit.index(index), emit.index(size))  # unsigned: a negative one is large
        inside = one if inside is None else emit.value("arith.andi", "i1", inside, one)
    if inside is None:
        return position, None
    zero = emit.index(0)
    return [emit.select_value(inside, emit.index(index), zero) for index in position], inside
