"""Operations on tensors of more than six axes, TOSA's limit, on reshaped tensors of fewer.

Adjacent axes that an operation treats alike are merged, with those of size one: around one axis that it reduces, joins,
reverses, cuts or extends, there are at most two more. The tensors of many axes that are left are reshaped from and to
others, and disappear.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Shape, attributes_of, producer, replace
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.resources import byte_size, is_resource, key_of, resource, resource_bytes
from fx_importer.mlir.walk import operations, rewrite

MAX_RANK = 6
"""Of the level 8k."""


@rewrite("fx-importer-reduce-tosa-ranks")
def reduce_tosa_ranks(module: ir.Operation) -> None:
    """Rewrite operations on tensors of more than `MAX_RANK` axes, where these merge."""
    tosa = [op for op in operations(module) if op.name.startswith("tosa.")]
    for op in [op for op in tosa if any(_rank(value) > MAX_RANK for value in (*op.operands, *op.results))]:
        rule = _RULES.get(op.name, _elementwise)
        shapes = [TosaOps.shape(value) for value in (*op.operands, *op.results) if _rank(value) > MAX_RANK]
        if not len(op.regions) and len(op.results) == 1 and all(shape.count(None) <= 1 for shape in shapes):
            made = rule(TosaOps.before(op), op)
            if made is not None:
                replace(op, made)


def _rank(value: ir.Value) -> int:
    return ir.RankedTensorType(value.type).rank if isinstance(value.type, ir.RankedTensorType) else 0


def _product(sizes: Sequence[int | None]) -> int | None:
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _reshaped(emit: TosaOps, value: ir.Value, shape: Shape) -> ir.Value:
    """Return ``value`` in ``shape``, from the source of its reshapes."""
    while producer(value) == "tosa.reshape":
        value = value.owner.operands[0]
    type_ = emit.tensor(shape, emit.element(value))
    if value.type == type_:
        return value
    if producer(value) == "tosa.const" and (constant := _reshaped_constant(value, type_)) is not None:
        return emit.const(constant)
    return emit.value("tosa.reshape", type_, value, emit.const_shape([-1 if s is None else s for s in shape]))


def _reshaped_constant(value: ir.Value, type_: ir.Type) -> ir.Attribute | None:
    """Return a constant in another shape; None where it cannot be read."""
    values = value.owner.attributes["values"]
    if is_resource(values):
        data = resource_bytes(values, byte_size(values))
        return None if data is None else resource(np.array(data), f"{key_of(values)}.reshaped", type_)
    dense = ir.DenseElementsAttr(values)
    if dense.is_splat:
        return ir.DenseElementsAttr.get_splat(type_, dense.get_splat_value())
    kind = ir.RankedTensorType(type_)
    try:
        array = np.array(dense).reshape(kind.shape)
    except (TypeError, ValueError):  # numpy lacks these floats
        return None
    return ir.DenseElementsAttr.get(array, type=type_, context=type_.context)


def _like(
    emit: TosaOps, op: ir.Operation, operands: Sequence[ir.Value], shape: Shape, **changed: ir.Attribute
) -> ir.Value:
    """Emit ``op`` on other operands, and return its result, of ``shape``."""
    type_ = emit.tensor(shape, emit.element(op.results[0]))
    return emit.op(op.name, [type_], operands, {**attributes_of(op), **changed}).result


def _elementwise(emit: TosaOps, op: ir.Operation) -> ir.Value | None:
    """Merge axes along which each operand has the size of the result, or is broadcast."""
    shape = emit.shape(op.results[0])
    shapes = [emit.shape(operand) if _rank(operand) == len(shape) else None for operand in op.operands]
    groups: list[list[int]] = []
    kinds: list[tuple[bool, ...]] = []  # of a group: whether each operand is broadcast along it
    for axis, size in enumerate(shape):
        kind = tuple(shape is not None and shape[axis] != size for shape in shapes)
        trivial = size == 1
        if groups and (trivial or kind == kinds[-1] or all(shape[other] == 1 for other in groups[-1])):
            kinds[-1] = kinds[-1] if trivial else kind
            groups[-1].append(axis)
        else:
            groups.append([axis])
            kinds.append(kind)
    if len(groups) > MAX_RANK or op.name not in _ELEMENTWISE:
        return None
    operands = [
        value if shape is None else _reshaped(emit, value, _merged(shape, groups))
        for value, shape in zip(op.operands, shapes, strict=True)
    ]
    return _reshaped(emit, _like(emit, op, operands, _merged(shape, groups)), shape)


def _merged(shape: Shape, groups: Sequence[Sequence[int]]) -> Shape:
    return tuple(_product([shape[axis] for axis in group]) for group in groups)


def _around(shape: Sequence[int | None], axis: int) -> tuple[int | None, int | None, int | None]:
    """Return the number of elements before, along and after ``axis``."""
    return _product(shape[:axis]), shape[axis], _product(shape[axis + 1 :])


def _along_axis(emit: TosaOps, op: ir.Operation) -> ir.Value | None:
    """Reduce, join or reverse along the second of three axes."""
    axis = ir.IntegerAttr(op.attributes["axis"]).value
    operands = [
        _reshaped(emit, operand, _around(emit.shape(operand), axis)) if _rank(operand) > MAX_RANK else operand
        for operand in op.operands
    ]
    result = emit.shape(op.results[0])
    before, _, after = _around(emit.shape(op.operands[0]), axis)
    shape = (before, after) if op.name == "tosa.argmax" else (before, result[axis], after)
    second = ir.IntegerAttr.get(ir.IntegerType.get_signless(32, op.context), 1)
    return _reshaped(emit, _like(emit, op, operands, shape, axis=second), result)


def _per_axis(emit: TosaOps, op: ir.Operation) -> ir.Value | None:
    """Slice, pad or repeat one axis after the other, each as the second of three."""
    settings = [_elements(operand) for operand in op.operands[1:] if producer(operand) == "tosa.const_shape"]
    rest = [operand for operand in op.operands[1:] if producer(operand) != "tosa.const_shape"]
    value, shape, result = op.operands[0], list(emit.shape(op.operands[0])), emit.shape(op.results[0])
    for axis, size in enumerate(result):
        if shape[axis] == size and (op.name != "tosa.slice" or settings[0][axis] == 0):
            continue
        before, old, after = _around(shape, axis)
        if before is None or after is None:
            return None  # a dynamic size to keep
        numbers = _numbers_around(op.name, settings[0], axis, before, size, after)
        operands = [_reshaped(emit, value, (before, old, after)), *map(emit.const_shape, numbers), *rest]
        value = _like(emit, op, operands, (before, size, after))
        shape[axis] = size
    return _reshaped(emit, value, result)


def _numbers_around(
    name: str, numbers: Sequence[int], axis: int, before: int, size: int | None, after: int
) -> list[list[int]]:
    """Return the shape operands of a slice, a pad or a tile along the second of three axes."""
    if name == "tosa.slice":
        return [[0, numbers[axis], 0], [before, size or 0, after]]
    return [[0, 0, *numbers[2 * axis : 2 * axis + 2], 0, 0]] if name == "tosa.pad" else [[1, numbers[axis], 1]]


def _elements(value: ir.Value) -> list[int]:
    """Return the elements of a ``tosa.const_shape``."""
    return [int(number) for number in np.array(ir.DenseElementsAttr(value.owner.attributes["values"])).reshape(-1)]


def _transpose(emit: TosaOps, op: ir.Operation) -> ir.Value | None:
    """Transpose merged axes at once, or where there are too many, bring one axis after the other to its place."""
    shape, result = emit.shape(op.operands[0]), emit.shape(op.results[0])
    order = [axis for axis in ir.DenseI32ArrayAttr(op.attributes["perms"]) if shape[axis] != 1]
    kept = sorted(order)
    follows = dict(itertools.pairwise(kept))
    groups: list[list[int]] = []
    for axis in order:
        if groups and follows.get(groups[-1][-1]) == axis:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if not groups:
        return _reshaped(emit, op.operands[0], result)
    sizes = {group[0]: _product([shape[axis] for axis in group]) for group in groups}
    current, wanted = sorted(sizes), [group[0] for group in groups]
    value = op.operands[0]
    if len(groups) <= MAX_RANK:
        moved = _reshaped(emit, value, tuple(sizes[axis] for axis in current))
        return _reshaped(emit, _transposed(emit, op, moved, [current.index(axis) for axis in wanted]), result)
    for position, axis in enumerate(wanted):
        at = current.index(axis)
        parts = (current[:position], current[position:at], [axis], current[at + 1 :])
        merged = tuple(_product([sizes[dim] for dim in part]) for part in parts)
        value = _transposed(emit, op, _reshaped(emit, value, merged), [0, 2, 1, 3])
        current = [*parts[0], axis, *parts[1], *parts[3]]
    return _reshaped(emit, value, result)


def _transposed(emit: TosaOps, op: ir.Operation, value: ir.Value, order: Sequence[int]) -> ir.Value:
    shape = emit.shape(value)
    perms = ir.DenseI32ArrayAttr.get(list(order), op.context)
    return _like(emit, op, [value], tuple(shape[axis] for axis in order), perms=perms)


def _reshape(emit: TosaOps, op: ir.Operation) -> ir.Value | None:
    """Reshape from the source of a reshape."""
    source = op.operands[0]
    if producer(source) not in ("tosa.reshape", "tosa.const"):
        return None
    return _reshaped(emit, source, emit.shape(op.results[0]))


_ELEMENTWISE = frozenset(
    f"tosa.{name}"
    for name in (
        *("abs", "add", "ceil", "clamp", "clz", "cos", "erf", "exp", "floor", "intdiv", "log", "mul", "negate", "pow"),
        *("reciprocal", "rsqrt", "sigmoid", "sin", "sub", "tanh", "maximum", "minimum", "cast", "identity", "select"),
        *("arithmetic_right_shift", "logical_left_shift", "logical_right_shift", "equal", "greater", "greater_equal"),
        *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"),
        *("logical_and", "logical_not", "logical_or", "logical_xor"),
    )
)

_RULES: Mapping[str, Callable[[TosaOps, ir.Operation], ir.Value | None]] = {
    **{f"tosa.reduce_{kind}": _along_axis for kind in ("all", "any", "max", "min", "product", "sum")},
    **{f"tosa.{name}": _along_axis for name in ("argmax", "concat", "reverse")},
    **{f"tosa.{name}": _per_axis for name in ("slice", "pad", "tile")},
    "tosa.transpose": _transpose,
    "tosa.reshape": _reshape,
    "tosa.const": lambda _emit, _op: None,
}
