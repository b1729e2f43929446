"""Reading and writing at the turn of a counted loop, in operations that take the position as a tensor.

``scan`` and ``map`` take a row per turn, and write one. The conversions to TOSA and StableHLO know no slice that starts
at a number that varies: reading becomes a gather, and writing a choice by position.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, constant_of, is_used, producer

_TENSOR = re.compile(r"!torch\.vtensor<\[(?P<shape>[\d,]+)\],")


def respell_counted_slices(body: ir.Block, counter: ir.Value, count: ir.Value) -> None:
    """Rewrite the operations in ``body`` that take ``counter``, a ``!torch.int``; ``count`` is the same in a tensor.

    Slices of more than one position, and tensors of dynamic shape, are left as they are.
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op)
        return ir.WalkResult.ADVANCE

    for op in body.operations:
        op.operation.walk(visit)
    rules = {
        "torch.aten.slice.Tensor": _read,
        "torch.aten.slice_scatter": _write,
        "torch.prim.NumToTensor.Scalar": _as_tensor,
    }
    for op in found:
        rule = rules.get(op.name)
        emit = Emitter(ir.InsertionPoint(op), op.location)
        if rule is not None and (result := rule(op, counter, count, emit)) is not None:
            op.results[0].replace_all_uses_with(result)
            operands = list(op.operands)
            op.erase()
            _erase_unused(operands)


def _read(op: ir.Operation, counter: ir.Value, count: ir.Value, emit: Emitter) -> ir.Value | None:
    tensor, axis, *bounds = op.operands
    offset = _only_position(bounds, counter)
    if offset is None or constant_of(axis) is None:
        return None
    shape = emit.value("torch.prim.ListConstruct", "!torch.list<int>", emit.integer(1))
    position = _plus(count, offset, emit)
    index = emit.value("torch.aten.view", str(count.type).replace("<[]", "<[1]"), position, shape)
    return emit.value("torch.aten.index_select", op.results[0].type, tensor, axis, index)


def _write(op: ir.Operation, counter: ir.Value, count: ir.Value, emit: Emitter) -> ir.Value | None:
    tensor, row, axis, *bounds = op.operands
    shape, axis = _shape(tensor), constant_of(axis)
    offset = _only_position(bounds, counter)
    if offset is None or axis is None or shape is None or not math.prod(shape):
        return None
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    positions = _positions(sizes, axis % len(shape), str(count.type).partition(",")[2].rstrip(">"), emit)
    mask = emit.value(
        "torch.aten.eq.Tensor",
        f"!torch.vtensor<[{','.join(map(str, sizes))}],i1>",
        positions,
        _plus(count, offset, emit),
    )
    return emit.value("torch.aten.where.self", op.results[0].type, mask, row, tensor)


def _as_tensor(op: ir.Operation, counter: ir.Value, count: ir.Value, emit: Emitter) -> ir.Value | None:
    if op.operands[0] != counter:
        return None
    if count.type == op.results[0].type:
        return count
    int64 = emit.integer(4)  # torch's number for the dtype
    return emit.value("torch.prims.convert_element_type", op.results[0].type, count, int64)


def _positions(sizes: Sequence[int], axis: int, dtype: str, emit: Emitter) -> ir.Value:
    """Emit the positions along ``axis``, in a tensor that has only one along the others."""
    text = "[" * (axis + 1)
    tail = len(sizes) - axis - 1
    text += ", ".join(f"{'[' * tail}{i}{']' * tail}" for i in range(sizes[axis])) + "]" * (axis + 1)
    attribute = ir.Attribute.parse(f"dense<{text}> : tensor<{'x'.join(map(str, sizes))}x{dtype}>", emit.context)
    type_ = f"!torch.vtensor<[{','.join(map(str, sizes))}],{dtype}>"
    return emit.op("torch.vtensor.literal", [type_], (), {"value": attribute}).result


def _plus(count: ir.Value, offset: int, emit: Emitter) -> ir.Value:
    if not offset:
        return count
    return emit.value("torch.aten.add.Scalar", count.type, count, emit.integer(offset), emit.integer(1))


def _only_position(bounds: Sequence[ir.Value], counter: ir.Value) -> int | None:
    """Return how far from the counter ``start, end, step`` is, if it is one position at it or after it."""
    start, end, step = bounds
    offset = _offset(start, counter)
    if offset is None or offset < 0 or _offset(end, counter) != offset + 1 or constant_of(step) != 1:
        return None
    return offset


def _offset(value: ir.Value, counter: ir.Value) -> int | None:
    """Return ``n`` where ``value`` is the counter plus ``n``, and perhaps what a negative index would need."""
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
        return any(_is_zero(each, counter) for each in value.owner.operands)
    if name == "torch.aten.Int.bool":
        return _is_zero(value.owner.operands[0], counter)
    if name == "torch.aten.lt.int":
        offset, bound = _offset(value.owner.operands[0], counter), constant_of(value.owner.operands[1])
        return offset is not None and offset >= 0 and bound == 0  # the counter is never negative
    return constant_of(value) == 0


def _shape(tensor: ir.Value) -> list[int] | None:
    found = _TENSOR.match(str(tensor.type))
    return [int(size) for size in found["shape"].split(",")] if found else None


def _erase_unused(values: Sequence[ir.Value]) -> None:
    names = ("torch.aten.add.int", "torch.aten.mul.int", "torch.aten.Int.bool", "torch.aten.lt.int")
    for value in dict.fromkeys(values):
        if producer(value) in names and not is_used(value):
            operands = list(value.owner.operands)
            value.owner.erase()
            _erase_unused(operands)
