"""Fold identities and arithmetic of constants in StableHLO, and transposed operands into ``dot_general``.

Folds must be exact for every value: ``x * 1`` and ``x - 0``, but not ``x + 0``, which makes ``-0.0`` positive. The
canonicalizer removes dead code afterwards.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, attributes_of, producer
from fx_importer.mlir.emit.stablehlo import ELEMENTWISE, StablehloOps
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.stablehlo.dimension_sizes import integer_array
from fx_importer.rewrites.stablehlo.dot_dimensions import fold_merges, fold_transposes, swapped_operands

_ROUNDED = (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)
"""Types of floats that numbers beyond them are infinite in."""


def _operand(op: ir.Operation) -> ir.Value:
    """Return the operand of an operation that is an identity if the type is unchanged."""
    return op.operands[0]


def _convert(op: ir.Operation) -> ir.Value | None:
    """Convert a splat to floats, 16-bit ones through float32, as PyTorch does; or return the operand."""
    number, type_ = _splat(op.operands[0]), ir.RankedTensorType(op.results[0].type)
    if number is None or not isinstance(type_.element_type, _ROUNDED) or not type_.has_static_shape:
        return op.operands[0]
    if (isinstance(number, int) and abs(number) > 1 << 53) or math.isnan(number):
        return None
    if type_.element_type.width == 16:
        number = ctypes.c_float(number).value
    return _filled(op, ir.FloatAttr.get(type_.element_type, number, loc=op.location))


def _integers(compute: Callable[[int, int], int]) -> Callable[[ir.Operation], ir.Value | None]:
    """Return a fold that computes the result of two splats of signed integers, which wraps around."""

    def fold(op: ir.Operation) -> ir.Value | None:
        kind = ir.RankedTensorType(op.results[0].type)
        if not isinstance(kind.element_type, ir.IntegerType) or kind.element_type.is_unsigned:
            return None
        a, b = (_splat(operand) for operand in op.operands)
        if not isinstance(a, int) or not isinstance(b, int) or not kind.has_static_shape:
            return None
        half = 1 << kind.element_type.width - 1
        number = (compute(a, b) + half) % (2 * half) - half
        return _filled(op, ir.IntegerAttr.get(kind.element_type, number))

    return fold


def _iota(op: ir.Operation) -> ir.Value | None:
    """Fold the places along an axis of size 1, which are 0."""
    kind = ir.RankedTensorType(op.results[0].type)
    axis = ir.IntegerAttr(op.attributes["iota_dimension"]).value
    if not isinstance(kind.element_type, ir.IntegerType) or not kind.has_static_shape or kind.shape[axis] != 1:
        return None
    return _filled(op, ir.IntegerAttr.get(kind.element_type, 0))


def _filled(op: ir.Operation, element: ir.Attribute) -> ir.Value:
    """Emit a splat of ``element`` with the type of the result of ``op``."""
    return StablehloOps.before(op).const(ir.DenseElementsAttr.get_splat(op.results[0].type, element))


def _broadcast(op: ir.Operation) -> ir.Value | None:
    """Fold a reshape that inserts axes of size 1, also before elementwise operations, and a splat."""
    dims = integer_array(op, "broadcast_dimensions")
    while producer(op.operands[0]) == "stablehlo.reshape":
        source = op.operands[0].owner.operands[0]
        axes = _kept_axes(ir.RankedTensorType(source.type), ir.RankedTensorType(op.operands[0].type))
        if axes is None:
            break
        dims = [dims[axis] for axis in axes]
        op.operands[0] = source
        op.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get(dims, context=op.context)
    type_ = ir.RankedTensorType(op.operands[0].type)
    kept = [axis for axis, size in enumerate(type_.shape) if size != 1]
    narrow = [type_.shape[axis] for axis in kept]
    if type_.has_static_shape and producer(op.operands[0]) in ELEMENTWISE and _had_shape(op.operands[0], narrow):
        dims = [dims[axis] for axis in kept]
        op.operands[0] = _in_shape(op.operands[0], narrow, StablehloOps.before(op))
        op.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get(dims, context=op.context)
    if (splat := _constant_splat(op)) is not None:
        return splat
    same = dims == list(range(len(dims))) and ir.RankedTensorType(op.results[0].type).has_static_shape
    return op.operands[0] if same else None


def _constant_splat(op: ir.Operation) -> ir.Value | None:
    """Return the constant that ``op`` is, a splat in another static shape, if only elementwise operations use it.

    One of rank 0 is a constant for all.

    Others, such as ``pad`` and ``concatenate``, are computed in memory by compilers, where a broadcast fills it.
    """
    type_ = ir.RankedTensorType(op.results[0].type)
    if not type_.has_static_shape or producer(op.operands[0]) != "stablehlo.constant":
        return None
    elements = op.operands[0].owner.attributes["value"]
    if (
        not isinstance(elements, ir.DenseElementsAttr)
        or not elements.is_splat
        or isinstance(type_.element_type, ir.ComplexType)
    ):
        return None
    if type_.rank and not all(use.owner.name in ELEMENTWISE for use in op.results[0].uses):
        return None
    return StablehloOps.before(op).const(ir.DenseElementsAttr.get_splat(type_, elements.get_splat_value()))


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
    """Fold a reshape of a reshape, with elementwise operations between."""
    source = op.operands[0]
    if producer(source) == "stablehlo.reshape":
        op.operands[0] = source.owner.operands[0]
    if (splat := _constant_splat(op)) is not None:
        return splat
    type_ = ir.RankedTensorType(op.results[0].type)
    if producer(op.operands[0]) in ELEMENTWISE and type_.has_static_shape and _had_shape(op.operands[0], type_.shape):
        return _in_shape(op.operands[0], type_.shape, StablehloOps.before(op))
    return op.operands[0]


def _had_shape(value: ir.Value, shape: list[int]) -> bool:
    """Return whether ``value`` is computed from tensors that had ``shape`` before a reshape, elementwise.

    Nothing else may use the operations between.
    """
    if producer(value) == "stablehlo.reshape":
        return ir.RankedTensorType(value.owner.operands[0].type).shape == shape
    if producer(value) not in ELEMENTWISE or sum(1 for _ in value.uses) > 1:
        return False
    size = ir.RankedTensorType(value.type).shape
    operands = [operand for operand in value.owner.operands if not _is_splat_of(operand, size)]
    return bool(operands) and all(
        ir.RankedTensorType(operand.type).shape == size and _had_shape(operand, shape) for operand in operands
    )


def _in_shape(value: ir.Value, shape: list[int], emit: StablehloOps) -> ir.Value:
    """Return ``value``, for which `_had_shape` is true, in ``shape``, without reshapes."""
    if producer(value) == "stablehlo.reshape":
        return value.owner.operands[0]
    type_ = emit.tensor(shape, emit.element(value))
    if producer(value) == "stablehlo.constant":
        return emit.const(ir.DenseElementsAttr.get_splat(type_, value.owner.attributes["value"].get_splat_value()))
    operands = [_in_shape(operand, shape, emit) for operand in value.owner.operands]
    return emit.op(value.owner.name, [type_], operands, attributes_of(value.owner)).result


def _is_splat_of(value: ir.Value, shape: list[int]) -> bool:
    """Return whether ``value`` is a splat constant of ``shape``."""
    is_constant = producer(value) == "stablehlo.constant" and _splat(value) is not None
    return is_constant and ir.RankedTensorType(value.type).shape == shape


def _transpose(op: ir.Operation) -> ir.Value | None:
    """Fold a transpose of a transpose, and one of a matmul's result into the order of its operands."""
    source, order = op.operands[0], integer_array(op, "permutation")
    if producer(source) == "stablehlo.transpose":
        first = integer_array(source.owner, "permutation")
        order = [first[axis] for axis in order]
        op.operands[0] = source.owner.operands[0]
        op.attributes["permutation"] = ir.DenseI64ArrayAttr.get(order, context=op.context)
    if producer(op.operands[0]) == "stablehlo.dot_general":
        return swapped_operands(op.operands[0], order)
    moved = [axis for axis in order if ir.RankedTensorType(op.operands[0].type).shape[axis] != 1]
    if moved == sorted(moved) and ir.RankedTensorType(op.results[0].type).has_static_shape and order != sorted(order):
        source = op.operands[0].owner.operands[0] if producer(op.operands[0]) == "stablehlo.reshape" else op.operands[0]
        return StablehloOps.before(op).stablehlo("reshape", op.results[0].type, source)
    return op.operands[0] if order == sorted(order) else None


def _dot_general(op: ir.Operation) -> ir.Value | None:
    """Fold transposes of operands, and reshapes that merge axes."""
    fold_transposes(op)
    return fold_merges(op)


def _multiply(op: ir.Operation) -> ir.Value | None:
    a, b = op.operands
    if (product := _integers(operator.mul)(op)) is not None:
        return product
    return a if _splat(b) == 1 else b if _splat(a) == 1 else None


def _divide(op: ir.Operation) -> ir.Value | None:
    return op.operands[0] if _splat(op.operands[1]) == 1 else None


def _subtract(op: ir.Operation) -> ir.Value | None:
    if _is_zero(op.operands[1], sign=1):
        return op.operands[0]
    return _integers(operator.sub)(op)


def _add(op: ir.Operation) -> ir.Value | None:
    a, b = op.operands
    if _is_zero(b, sign=-1):
        return a
    return b if _is_zero(a, sign=-1) else _integers(operator.add)(op)


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
    elements = value.owner.attributes["value"]
    if str(element) == "i1" or not isinstance(elements, ir.DenseElementsAttr) or not elements.is_splat:
        return None
    return elements.get_splat_value().value


def _root(op: ir.Operation) -> ir.Value | None:
    """Compute the root of a splat of float32 or float64, rounded correctly."""
    number, type_ = _splat(op.operands[0]), ir.RankedTensorType(op.results[0].type)
    if number is None or number <= 0 or not isinstance(type_.element_type, (ir.F32Type, ir.F64Type)):
        return None
    root = math.sqrt(number) if op.name == "stablehlo.sqrt" else 1 / math.sqrt(number)
    if not type_.has_static_shape or root == math.inf:
        return None
    return _filled(op, ir.FloatAttr.get(type_.element_type, root, loc=op.location))


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
    "stablehlo.convert": _convert,
    "stablehlo.divide": _divide,
    "stablehlo.dynamic_iota": _dynamic_iota,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.iota": _iota,
    "stablehlo.maximum": _integers(max),
    "stablehlo.minimum": _integers(min),
    "stablehlo.multiply": _multiply,
    "stablehlo.reduce": _reduce,
    "stablehlo.reshape": _reshape,
    "stablehlo.rsqrt": _root,
    "stablehlo.slice": _operand,
    "stablehlo.sqrt": _root,
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
