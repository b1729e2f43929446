"""Split merged batch dimensions of ``dot_general``, for partitioners."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import producer, replace
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-split-batch-dimensions", ops=("stablehlo.dot_general",), emitter=StablehloOps)
def split_batch_dimensions(op: ir.Operation, emit: StablehloOps) -> None:
    """Undo reshapes that merge dimensions, such as sequences and heads, into the batch dimension of a matmul.

    If devices shard sequences and heads, no sharding describes the merged dimension, and a partitioner gathers it. The
    arithmetic is unchanged.
    """
    numbers = stablehlo_d.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batches = list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)
    merged = [_merged(operand) for operand in op.operands]
    sizes = _refined([dim for dim in merged if dim is not None])
    if batches != ([0], [0]) or None in merged or sizes is None:
        return

    def split(type_: ir.Type) -> ir.Type:
        whole = ir.RankedTensorType(type_)
        return emit.tensor([*sizes, *whole.shape[1:]], str(whole.element_type))

    added, batch = len(sizes) - 1, list(range(len(sizes)))
    operands = [_reshaped(operand.owner.operands[0], split(operand.type), emit) for operand in op.operands]
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["dot_dimension_numbers"] = stablehlo_d.DotDimensionNumbers.get(
        lhs_batching_dimensions=batch,
        rhs_batching_dimensions=batch,
        lhs_contracting_dimensions=[axis + added for axis in numbers.lhs_contracting_dimensions],
        rhs_contracting_dimensions=[axis + added for axis in numbers.rhs_contracting_dimensions],
        context=op.context,
    )
    product = emit.op("stablehlo.dot_general", [split(op.results[0].type)], operands, attributes).result
    replace(op, emit.stablehlo("reshape", op.results[0].type, product))


def _reshaped(value: ir.Value, type_: ir.Type, emit: StablehloOps) -> ir.Value:
    return value if value.type == type_ else emit.stablehlo("reshape", type_, value)


def _merged(value: ir.Value) -> list[int] | None:
    """Return the sizes that a reshape merges into the first dimension; None if ``value`` is another operation."""
    if producer(value) != "stablehlo.reshape":
        return None
    new, old = (ir.RankedTensorType(operand.type) for operand in (value, value.owner.operands[0]))
    if not new.has_static_shape or not old.has_static_shape:
        return None
    count = old.rank - new.rank + 1
    is_merge = count > 1 and math.prod(old.shape[:count]) == new.shape[0] and old.shape[count:] == new.shape[1:]
    return old.shape[:count] if is_merge else None


def _refined(shapes: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the common refinement of ``shapes``; None if there is none, or it has a single size.

    Each size in ``shapes`` is a product of consecutive returned sizes.
    """
    bounds = sorted({bound for sizes in shapes for bound in itertools.accumulate(sizes, operator.mul, initial=1)})
    steps = list(itertools.pairwise(bounds))
    if len(steps) < 2 or any(after % before for before, after in steps):
        return None
    return [after // before for before, after in steps]
