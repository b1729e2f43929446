"""Fold identities in StableHLO, and transposed operands into ``dot_general``.

Folds must be exact for every value: ``x * 1`` and ``x - 0``, but not ``x + 0``, which makes ``-0.0`` positive. The
canonicalizer removes dead code afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import Emitter, producer
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.stablehlo.dimension_sizes import integer_array


def _operand(op: ir.Operation) -> ir.Value:
    """Return the operand of an operation that is an identity if the type is unchanged."""
    return op.operands[0]


def _broadcast(op: ir.Operation) -> ir.Value | None:
    """Fold a reshape that inserts axes of size 1."""
    dims = integer_array(op, "broadcast_dimensions")
    while producer(op.operands[0]) == "stablehlo.reshape":
        source = op.operands[0].owner.operands[0]
        axes = _kept_axes(ir.RankedTensorType(source.type), ir.RankedTensorType(op.operands[0].type))
        if axes is None:
            break
        dims = [dims[axis] for axis in axes]
        op.operands[0] = source
        op.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get(dims, context=op.context)
    same = dims == list(range(len(dims))) and ir.RankedTensorType(op.results[0].type).has_static_shape
    return op.operands[0] if same else None


def _kept_axes(source: ir.RankedTensorType, result: ir.RankedTensorType) -> list[int] | None:
    """Return the axis of ``result`` for each axis of ``source``, if all others have size 1."""
    if not source.has_static_shape or not result.has_static_shape:
        return None
    axes: list[int] = []
    sizes = list(source.shape)
    for axis, size in enumerate(result.shape):
        if len(axes) < len(sizes) and size == sizes[len(axes)]:
            axes.append(axis)
        elif size != 1:
            return None
    return axes if len(axes) == len(sizes) else None


def _concatenate(op: ir.Operation) -> ir.Value | None:
    return op.operands[0] if len(op.operands) == 1 else None


def _reshape(op: ir.Operation) -> ir.Value | None:
    """Fold a reshape of a reshape."""
    source = op.operands[0]
    if producer(source) == "stablehlo.reshape":
        op.operands[0] = source.owner.operands[0]
    return op.operands[0]


def _transpose(op: ir.Operation) -> ir.Value | None:
    """Fold a transpose of a transpose."""
    source, order = op.operands[0], integer_array(op, "permutation")
    if producer(source) == "stablehlo.transpose":
        first = integer_array(source.owner, "permutation")
        order = [first[axis] for axis in order]
        op.operands[0] = source.owner.operands[0]
        op.attributes["permutation"] = ir.DenseI64ArrayAttr.get(order, context=op.context)
    return op.operands[0] if order == sorted(order) else None


def _dot_general(op: ir.Operation) -> None:
    """Fold a ``transpose`` of an operand into the dimension numbers, where the free axes stay in order."""
    numbers = stablehlo_d.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batches = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
    contracted = [list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)]
    for side in (0, 1):
        while producer(op.operands[side]) == "stablehlo.transpose":
            transpose = op.operands[side].owner
            order = integer_array(transpose, "permutation")
            free = [axis for i, axis in enumerate(order) if i not in (*batches[side], *contracted[side])]
            if free != sorted(free):
                break
            batches[side] = [order[axis] for axis in batches[side]]
            contracted[side] = [order[axis] for axis in contracted[side]]
            op.operands[side] = transpose.operands[0]
    op.attributes["dot_dimension_numbers"] = stablehlo_d.DotDimensionNumbers.get(
        lhs_batching_dimensions=batches[0],
        rhs_batching_dimensions=batches[1],
        lhs_contracting_dimensions=contracted[0],
        rhs_contracting_dimensions=contracted[1],
        context=op.context,
    )


def _multiply(op: ir.Operation) -> ir.Value | None:
    a, b = op.operands
    return a if _splat(b) == 1 else b if _splat(a) == 1 else None


def _divide(op: ir.Operation) -> ir.Value | None:
    return op.operands[0] if _splat(op.operands[1]) == 1 else None


def _subtract(op: ir.Operation) -> ir.Value | None:
    return op.operands[0] if _is_zero(op.operands[1], sign=1) else None


def _add(op: ir.Operation) -> ir.Value | None:
    a, b = op.operands
    return a if _is_zero(b, sign=-1) else b if _is_zero(a, sign=-1) else None


def _is_zero(value: ir.Value, sign: int) -> bool:
    """Whether ``value`` is a splat of 0; for floats, the 0 with this sign."""
    number = _splat(value)
    return number == 0 and (isinstance(number, int) or math.copysign(1, number) == sign)


def _splat(value: ir.Value) -> int | float | None:
    """Return the element of ``value`` if it is a splat constant, or a broadcast or reshape of one."""
    while producer(value) in ("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim", "stablehlo.reshape"):
        value = value.owner.operands[0]
    element = ir.RankedTensorType(value.type).element_type
    if producer(value) != "stablehlo.constant" or not isinstance(element, (ir.IntegerType, ir.FloatType)):
        return None
    held = value.owner.attributes["value"]
    if str(element) == "i1" or not isinstance(held, ir.DenseElementsAttr) or not held.is_splat:
        return None
    return held.get_splat_value().value


def _dynamic_iota(op: ir.Operation) -> ir.Value | None:
    """Drop the sizes operand of a statically shaped iota."""
    kind = op.results[0].type
    if not ir.RankedTensorType(kind).has_static_shape:
        return None
    return (
        Emitter.before(op).op("stablehlo.iota", [kind], (), {"iota_dimension": op.attributes["iota_dimension"]}).result
    )


def _reduce(op: ir.Operation) -> ir.Value | None:
    """Inline the body of a rank-0 reduction, applied to the initial value and the tensor."""
    if len(op.results) != 1 or ir.RankedTensorType(op.operands[0].type).rank:
        return None
    x, initial = op.operands
    return Emitter.before(op).inline_block(op.regions[0].blocks[0], [initial, x])[0]


_FOLDS: dict[str, Callable[[ir.Operation], ir.Value | None]] = {
    "stablehlo.add": _add,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.convert": _operand,
    "stablehlo.divide": _divide,
    "stablehlo.dynamic_iota": _dynamic_iota,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.multiply": _multiply,
    "stablehlo.reduce": _reduce,
    "stablehlo.reshape": _reshape,
    "stablehlo.slice": _operand,
    "stablehlo.subtract": _subtract,
    "stablehlo.transpose": _transpose,
}
"""Each returns the value that the result equals, or None. It is used only if it has the result's type."""


@rewrite("fx-importer-fold-stablehlo-no-ops", ops=_FOLDS)
def fold_stablehlo_no_ops(op: ir.Operation) -> None:
    """Replace no-ops by their operand, and reductions over no axes by their body.

    Fold transposes into ``dot_general``, and drop sizes that the type already states.
    """
    value = _FOLDS[op.name](op)
    if value is not None and value.type == op.results[0].type:
        op.results[0].replace_all_uses_with(value)
