"""Data movement and conversions of tensors with dynamic sizes: their C++ lowerings require static ones.

Attributes stay static: a slice takes a dynamic axis whole, or to its end (size -1); a reshape infers one. What
needs the number itself is left alone, and the C++ lowering reports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import producer, replace, with_element
from fx_importer.mlir.emit_torch import constant_of
from fx_importer.mlir.emit_torch_tosa import TorchTosaOps, list_of, tensor_type_of
from fx_importer.mlir.walk import rewrite

_FLOATS = ("f16", "bf16", "f32", "f64")
_DTYPES = {"f32": np.float32, "f64": np.float64}
_OPEN_END = 2**62
"""An end of a slice beyond this is the end of the axis; the graph has 2^63 - 1."""


def _slice(op: ir.Operation, emit: TorchTosaOps) -> ir.Value | None:
    numbers = [constant_of(each) for each in list(op.operands)[1:]]
    x = emit.builtin(op.operands[0])
    found = tensor_type_of(op.results[0])
    if x is None or found is None:
        return None
    axis, start, end, step = numbers
    start = 0 if producer(op.operands[2]) == "torch.constant.none" else start
    end = 2**63 - 1 if producer(op.operands[3]) == "torch.constant.none" else end
    if axis is None or start is None or end is None or step is None:
        return None
    axis %= len(emit.shape(x))
    size, number = emit.shape(x)[axis], found[0][axis]
    if size is None:
        return _slice_of_dynamic_axis(emit, x, axis, start, end, number) if step == 1 else None
    start, end, step = slice(start, end, step).indices(size)
    return _strided(emit, x, axis, start, len(range(start, end, step)), step)


def _slice_of_dynamic_axis(
    emit: TorchTosaOps, x: ir.Value, axis: int, start: int, end: int, number: int | None
) -> ir.Value | None:
    """Slice ``number`` elements, if that is static; else all between constant distances from both ends."""
    if start >= 0 and number is not None:
        return emit.part(x, axis, start, number)
    if start < 0 and number is not None and end >= _OPEN_END:
        return emit.reverse(emit.part(emit.reverse(x, axis), axis, 0, number), axis) if number == -start else None
    if start < 0 and number is not None and end < 0:
        return emit.reverse(emit.part(emit.reverse(x, axis), axis, -end, number), axis)
    if start < 0 or number is not None or 0 <= end < _OPEN_END:
        return None
    rest = emit.part(x, axis, start, None) if start else x
    return rest if end >= _OPEN_END else emit.reverse(emit.part(emit.reverse(rest, axis), axis, -end, None), axis)


def _strided(emit: TorchTosaOps, x: ir.Value, axis: int, start: int, number: int, step: int) -> ir.Value | None:
    """Return every ``step``-th element: the first column of rows of ``step``, and the last element."""
    if not number:
        return None
    x = emit.part(x, axis, start, (number - 1) * step + 1)
    if step == 1 or number == 1:
        return x
    shape = list(emit.shape(x))
    rows = emit.reshape(
        emit.part(x, axis, 0, (number - 1) * step), [*shape[:axis], number - 1, step, *shape[axis + 1 :]]
    )
    if rows is None:
        return None
    firsts = emit.reshape(emit.part(rows, axis + 1, 0, 1), [*shape[:axis], number - 1, *shape[axis + 1 :]])
    return firsts and emit.concat([firsts, emit.part(x, axis, (number - 1) * step, 1)], axis)


def _cat(op: ir.Operation, emit: TorchTosaOps) -> ir.Value | None:
    found, axis, given = tensor_type_of(op.results[0]), constant_of(op.operands[1]), list_of(op.operands[0])
    if found is None or axis is None or given is None:
        return None
    parts = [emit.builtin(each) for each in given]
    known = [each for each in parts if each is not None and len(emit.shape(each)) == len(found[0])]
    if len(known) < len(parts) or {emit.element(each) for each in known} != {found[1]}:
        return None
    return emit.concat(known, axis % len(found[0]))


def _broadcast(op: ir.Operation, emit: TorchTosaOps) -> ir.Value | None:
    """Tile static axes of size 1; dynamic axes are kept. A new dynamic size is left alone."""
    found, x = tensor_type_of(op.results[0]), emit.builtin(op.operands[0])
    if found is None or x is None:
        return None
    old = [1] * (len(found[0]) - len(emit.shape(x))) + list(emit.shape(x))
    if any(new is None and size == 1 for size, new in zip(old, found[0], strict=True)):
        return None
    wide = emit.reshape(x, old)
    times = [new if size == 1 else 1 for size, new in zip(old, found[0], strict=True)]
    if wide is None or all(each == 1 for each in times):
        return wide
    return emit.value("tosa.tile", emit.tensor(*found), wide, emit.const_shape([each or 1 for each in times]))


def _convert(op: ir.Operation, emit: TorchTosaOps) -> ir.Value | None:
    """Convert as torch: towards zero from floats to integers, and to bool whether a number is not zero."""
    found, x = tensor_type_of(op.results[0]), emit.builtin(op.operands[0])
    if found is None or x is None:
        return None
    source, target = emit.element(x), found[1]
    if target == "i1" and source != "i1":
        x = _widened(emit, x)
        dtype = _DTYPES[emit.element(x)] if source in _FLOATS else np.dtype(f"int{source[1:]}")
        zero = emit.const_array(np.zeros([1] * len(found[0]), dtype))
        bools = emit.tensor(*found)
        return emit.value("tosa.logical_not", bools, emit.value("tosa.equal", bools, x, zero))
    if source in _FLOATS and target not in _FLOATS:
        x = _towards_zero(emit, _widened(emit, x))
    if {source, target} == {"f16", "bf16"}:
        x = emit.cast_element(x, "f32")
    return x if emit.element(x) == target else emit.cast_element(x, target)


def _widened(emit: TorchTosaOps, x: ir.Value) -> ir.Value:
    """Return half precision in f32; numpy has no bf16 for constants."""
    return emit.cast_element(x, "f32") if emit.element(x) in ("f16", "bf16") else x


def _towards_zero(emit: TorchTosaOps, x: ir.Value) -> ir.Value:
    zero = emit.const_array(np.zeros([1] * len(emit.shape(x)), _DTYPES[emit.element(x)]))
    negative = emit.value("tosa.greater", with_element(x.type, "i1"), zero, x)
    down, up = (emit.value(name, x.type, x) for name in ("tosa.floor", "tosa.ceil"))
    return emit.value("tosa.select", x.type, negative, up, down)


def _gather(op: ir.Operation, emit: TorchTosaOps) -> ir.Value | None:
    """Gather along an axis: as the middle axis of ``[N, K, 1]``, where N are all others."""
    x, axis, indices = emit.builtin(op.operands[0]), constant_of(op.operands[1]), emit.builtin(op.operands[2])
    if x is None or axis is None or indices is None or not emit.shape(x):
        return None
    rank = len(emit.shape(x))
    axis %= rank
    for each in range(rank):
        size, taken = emit.shape(x)[each], emit.shape(indices)[each]
        if each != axis and taken is not None and size != taken:
            x = emit.part(x, each, 0, taken)
    order = [each for each in range(rank) if each != axis] + [axis]
    x, indices = emit.transpose(x, order), emit.transpose(indices, order)
    (*others, size), (*_, number) = emit.shape(x), emit.shape(indices)
    picked = emit.shape(indices)
    number_of_others = _product(others)
    values = emit.reshape(x, [number_of_others, size, 1])
    places = emit.reshape(indices, [number_of_others, number])
    if values is None or places is None:
        return None
    result = emit.reshape(emit.gather(values, places), picked)
    return result and emit.transpose(result, [order.index(each) for each in range(rank)])


def _index_select(op: ir.Operation, emit: TorchTosaOps) -> ir.Value | None:
    """Select along an axis: as the middle axis of ``[1, K, C]``, where C are all others."""
    x, axis, indices = emit.builtin(op.operands[0]), constant_of(op.operands[1]), emit.builtin(op.operands[2])
    if x is None or axis is None or indices is None or not emit.shape(x):
        return None
    rank = len(emit.shape(x))
    axis %= rank
    order = [axis, *(each for each in range(rank) if each != axis)]
    (size, *others) = emit.shape(emit.transpose(x, order))
    number = _product(emit.shape(indices))
    values = emit.reshape(emit.transpose(x, order), [1, size, _product(others)])
    places = emit.reshape(indices, [1, number])
    if values is None or places is None:
        return None
    rows = emit.reshape(emit.gather(values, places), [number, *others])
    return rows and emit.transpose(rows, [order.index(each) for each in range(rank)])


def _product(sizes: list[int | None] | tuple[int | None, ...]) -> int | None:
    return None if None in sizes else math.prod(size or 0 for size in sizes)


_LOWERINGS: dict[str, Callable[[ir.Operation, TorchTosaOps], ir.Value | None]] = {
    "torch.aten.slice.Tensor": _slice,
    "torch.aten.cat": _cat,
    "torch.aten.broadcast_to": _broadcast,
    "torch.aten.to.dtype": _convert,
    "torch.aten.gather": _gather,
    "torch.aten.index_select": _index_select,
}


@rewrite("fx-importer-dynamic-sizes-to-tosa", ops=_LOWERINGS, emitter=TorchTosaOps)
def dynamic_sizes_to_tosa(op: ir.Operation, emit: TorchTosaOps) -> None:
    """Lower data movement and conversions of tensors with dynamic sizes where all attributes are static."""
    tensors = [found for each in (*op.operands, *op.results) if (found := tensor_type_of(each))]
    listed = [found for each in op.operands for part in list_of(each) or () if (found := tensor_type_of(part))]
    if not any(None in shape for shape, _ in (*tensors, *listed)):
        return
    value = _LOWERINGS[op.name](op, emit)
    if value is None:
        return
    shape, element = tensor_type_of(op.results[0]) or ((), "")
    if value.type != emit.tensor(shape, element):
        value = emit.value("tensor.cast", emit.tensor(shape, element), value)
    replace(op, emit.value("torch_c.from_builtin_tensor", op.results[0].type, value))
