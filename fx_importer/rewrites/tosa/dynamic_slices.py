"""Slices of tensors with dynamic sizes, at constant or computed bounds, and pads by dynamic widths."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import list_of, tensor_type_of
from fx_importer.mlir.emit.tosa_sizes import TosaSizeOps

_END = 2**63 - 1
_OPEN_END = 2**62
"""An end of a slice beyond this is the end of the axis; the graph has 2^63 - 1."""


def slice_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Return a slice between constant or computed bounds; None for a step that is not constant."""
    x, kind = emit.builtin(op.operands[0]), tensor_type_of(op.results[0])
    axis, step = constant_of(op.operands[1]), constant_of(op.operands[4])
    start, end = (
        default if producer(bound) == "torch.constant.none" else emit.size_of(bound)
        for bound, default in ((op.operands[2], 0), (op.operands[3], _END))
    )
    if x is None or kind is None or axis is None or step is None or start is None or end is None:
        return None
    axis %= len(emit.shape(x))
    size, number = emit.shape(x)[axis], kind[0][axis]
    if isinstance(start, int) and isinstance(end, int):
        if size is not None:
            start, end, step = slice(start, end, step).indices(size)
            return _strided(emit, x, axis, start, len(range(start, end, step)), step)
        if step == 1 and (part := _constant_part_of_dynamic_axis(emit, x, axis, start, end, number)) is not None:
            return part
    length = emit.dim(x, axis)
    first, last = (_from_the_front(emit, bound, length) for bound in (start, end))
    count = emit.compute("sub", last, first) if number is None or step != 1 else number
    part = emit.range_of(x, axis, first, count)
    return part if step == 1 else _every(emit, part, axis, step)


def _from_the_front(emit: TosaSizeOps, bound: Size, length: Size) -> Size:
    """Return a bound of a slice as torch counts it: negative constants from the end, and none beyond the end.

    A computed bound is not negative, or the slice is invalid when it is specialized.
    """
    if isinstance(bound, int) and bound >= _OPEN_END:
        return length
    if isinstance(bound, int) and bound <= 0:
        return emit.compute("max", emit.compute("add", length, bound), 0) if bound else 0
    return emit.compute("min", bound, length)


def _every(emit: TosaSizeOps, x: ir.Value, axis: int, step: int) -> ir.Value:
    """Return every ``step``-th element along a dynamic axis: the first column of rows of ``step``, after padding."""
    sizes = emit.sizes(x)
    rows = emit.compute("div_ceil", sizes[axis], step)
    behind = emit.compute("sub", emit.compute("mul", rows, step), sizes[axis])
    widths: list[Size] = [0] * (2 * len(sizes))
    widths[2 * axis + 1] = behind
    padded = emit.pad_with_zeros(x, widths)
    table = emit.reshape_to(padded, [*sizes[:axis], rows, step, *sizes[axis + 1 :]])
    return emit.reshape_to(emit.part(table, axis + 1, 0, 1), [*sizes[:axis], rows, *sizes[axis + 1 :]])


def _constant_part_of_dynamic_axis(
    emit: TosaSizeOps, x: ir.Value, axis: int, start: int, end: int, number: int | None
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


def _strided(emit: TosaSizeOps, x: ir.Value, axis: int, start: int, number: int, step: int) -> ir.Value | None:
    """Return every ``step``-th element: the first column of rows of ``step``, and the last element."""
    if not number:
        return None
    x = emit.part(x, axis, start, (number - 1) * step + 1)
    if step == 1 or number == 1:
        return x
    sizes = emit.sizes(x)
    rows = emit.part(x, axis, 0, (number - 1) * step)
    table = emit.reshape_to(rows, [*sizes[:axis], number - 1, step, *sizes[axis + 1 :]])
    firsts = emit.reshape_to(emit.part(table, axis + 1, 0, 1), [*sizes[:axis], number - 1, *sizes[axis + 1 :]])
    return emit.concat([firsts, emit.part(x, axis, (number - 1) * step, 1)], axis)


_FLOATS = ("f16", "bf16", "f32")


def pad_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Return a tensor of floats padded with zeros; None for constant widths, and for other values."""
    x, numbers = emit.builtin(op.operands[0]), list_of(op.operands[1])
    if x is None or numbers is None or not _is_zero(op.operands[2]) or emit.element(x) not in _FLOATS:
        return None
    widths = [emit.size_of(number) for number in numbers]
    known = [width for width in widths if width is not None]
    if len(known) < len(widths) or all(isinstance(size, int) for size in known):
        return None
    rank = len(emit.shape(x))
    added: list[Size] = [0] * (2 * rank)
    cropped: list[Size] = [0] * (2 * rank)
    for number, width in enumerate(known):  # from the last axis on: before it, and behind it
        at = 2 * (rank - 1 - number // 2) + number % 2
        added[at] = emit.compute("max", width, 0)
        cropped[at] = emit.compute("max", emit.compute("sub", 0, width), 0)
    result = emit.pad_with_zeros(x, added)
    for axis in range(rank):
        before, behind = cropped[2 * axis : 2 * axis + 2]
        if before != 0 or behind != 0:
            rest = emit.compute("sub", emit.compute("sub", emit.dim(result, axis), before), behind)
            result = emit.range_of(result, axis, before, rest)
    return result


def _is_zero(value: ir.Value) -> bool:
    if producer(value) == "torch.constant.float":
        return ir.FloatAttr(value.owner.attributes["value"]).value == 0.0
    return constant_of(value) == 0
