"""Slices at the induction variable of a counted loop, in operations that take the index as a tensor.

``scan`` and ``map`` read a row and write one in each iteration. The conversions to TOSA and StableHLO have no slice
whose start is not constant: reading becomes a gather, and writing a select by index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import is_used, producer, replace
from fx_importer.mlir.emit.torch import TorchOps, constant_of
from fx_importer.mlir.types import TorchTensor
from fx_importer.mlir.walk import operations


def rewrite_counted_slices(body: ir.Block, counter: ir.Value, count: ir.Value) -> None:
    """Rewrite the operations in ``body`` that take ``counter``, a ``!torch.int``; ``count`` is the same as a tensor.

    Slices of more than one index, and tensors of dynamic shape, are left alone.
    """
    for op in [rewritten for operation in body.operations for rewritten in operations(operation.operation, _REWRITES)]:
        result = _REWRITES[op.name](op, counter, count, TorchOps.before(op))
        if result is not None:
            operands = list(op.operands)
            replace(op, result)
            _erase_unused(operands)


def _read(op: ir.Operation, counter: ir.Value, count: ir.Value, emit: TorchOps) -> ir.Value | None:
    tensor, axis, *bounds = op.operands
    offset = _index_offset(bounds, counter)
    if offset is None or constant_of(axis) is None:
        return None
    shape = emit.value("torch.prim.ListConstruct", "!torch.list<int>", emit.integer(1))
    index = _plus(count, offset, emit)
    index = emit.value("torch.aten.view", str(TorchTensor.of(count).with_shape([1])), index, shape)
    return emit.value("torch.aten.index_select", op.results[0].type, tensor, axis, index)


def _write(op: ir.Operation, counter: ir.Value, count: ir.Value, emit: TorchOps) -> ir.Value | None:
    tensor, row, axis, *bounds = op.operands
    shape, axis = _shape(tensor), constant_of(axis)
    offset = _index_offset(bounds, counter)
    if offset is None or axis is None or shape is None or not math.prod(shape):
        return None
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    indices = _indices(sizes, axis % len(shape), TorchTensor.of(count).element, emit)
    kind = str(TorchTensor(tuple(sizes), "i1"))
    mask = emit.value("torch.aten.eq.Tensor", kind, indices, _plus(count, offset, emit))
    return emit.value("torch.aten.where.self", op.results[0].type, mask, row, tensor)


def _as_tensor(op: ir.Operation, counter: ir.Value, count: ir.Value, emit: TorchOps) -> ir.Value | None:
    if op.operands[0] != counter:
        return None
    if count.type == op.results[0].type:
        return count
    int64 = emit.integer(4)  # torch's enum value of the dtype
    return emit.value("torch.prims.convert_element_type", op.results[0].type, count, int64)


def _indices(sizes: Sequence[int], axis: int, dtype: str, emit: TorchOps) -> ir.Value:
    """Emit 0, 1, 2, … along ``axis``, in a tensor whose other sizes are 1."""
    text = "[" * (axis + 1)
    tail = len(sizes) - axis - 1
    text += ", ".join(f"{'[' * tail}{i}{']' * tail}" for i in range(sizes[axis])) + "]" * (axis + 1)
    attribute = emit.attribute(f"dense<{text}> : tensor<{'x'.join(map(str, sizes))}x{dtype}>")
    type_ = TorchTensor(tuple(sizes), dtype)
    return emit.op("torch.vtensor.literal", [str(type_)], (), {"value": attribute}).result


def _plus(count: ir.Value, offset: int, emit: TorchOps) -> ir.Value:
    if not offset:
        return count
    return emit.value("torch.aten.add.Scalar", count.type, count, emit.integer(offset), emit.integer(1))


def _index_offset(bounds: Sequence[ir.Value], counter: ir.Value) -> int | None:
    """Return ``n`` where ``start, end, step`` select the one index ``counter + n``, and ``n`` is not negative."""
    start, end, step = bounds
    offset = _offset(start, counter)
    if offset is None or offset < 0 or _offset(end, counter) != offset + 1 or constant_of(step) != 1:
        return None
    return offset


def _offset(value: ir.Value, counter: ir.Value) -> int | None:
    """Return ``n`` where ``value`` is ``counter + n``, also with the terms that wrap a negative index, which are 0."""
    if value == counter:
        return 0
    if producer(value) != "torch.aten.add.int":
        return None
    first, more = value.owner.operands
    offset, added = _offset(first, counter), 0 if _is_zero(more, counter) else constant_of(more)
    return None if offset is None or added is None else offset + added


def _is_zero(value: ir.Value, counter: ir.Value) -> bool:
    name = producer(value)
    if name == "torch.aten.mul.int":
        return any(_is_zero(operand, counter) for operand in value.owner.operands)
    if name == "torch.aten.Int.bool":
        return _is_zero(value.owner.operands[0], counter)
    if name == "torch.aten.lt.int":
        offset, bound = _offset(value.owner.operands[0], counter), constant_of(value.owner.operands[1])
        return offset is not None and offset >= 0 and bound == 0  # the counter is never negative
    return constant_of(value) == 0


def _shape(tensor: ir.Value) -> list[int] | None:
    """Return the sizes of a tensor; None if it has rank 0 or a dynamic size."""
    kind = TorchTensor.read(tensor.type)
    sizes = [size for size in kind.shape if size is not None] if kind else []
    return sizes if kind and sizes and len(sizes) == len(kind.shape) else None


def _erase_unused(values: Sequence[ir.Value]) -> None:
    names = ("torch.aten.add.int", "torch.aten.mul.int", "torch.aten.Int.bool", "torch.aten.lt.int")
    for value in dict.fromkeys(values):
        if producer(value) in names and not is_used(value):
            operands = list(value.owner.operands)
            value.owner.erase()
            _erase_unused(operands)


_REWRITES: dict[str, Callable[[ir.Operation, ir.Value, ir.Value, TorchOps], ir.Value | None]] = {
    "torch.aten.slice.Tensor": _read,
    "torch.aten.slice_scatter": _write,
    "torch.prim.NumToTensor.Scalar": _as_tensor,
}
"""Each takes the operation, the counter, the counter as a tensor and an emitter, and returns None for no match."""
