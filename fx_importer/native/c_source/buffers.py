"""Buffers in C: a pointer, with sizes and strides as numbers or expressions, and the memref operations on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.native.c_source.scalars import c_type, paren

if TYPE_CHECKING:
    from fx_importer.native.c_source.functions import FunctionWriter

Number = int | str
"""A number of the program, or an expression of C."""


@dataclass(frozen=True)
class Buffer:
    """Elements in memory. Element ``i, j`` is ``pointer[offset + i * strides[0] + j * strides[1]]``."""

    pointer: str
    element: str
    """The type of C."""
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    offset: Number = 0

    def at(self, indices: Sequence[Number]) -> str:
        """Return the element at ``indices``."""
        return f"{self.pointer}[{self.position(indices)}]"

    def position(self, indices: Sequence[Number]) -> str:
        """Return the position of the element at ``indices``."""
        terms = (times(index, stride) for index, stride in zip(indices, self.strides, strict=True))
        total: Number = self.offset
        for term in terms:
            total = plus(total, term)
        return str(total)


def times(left: Number, right: Number) -> Number:
    """Return the product."""
    left, right = _folded(left), _folded(right)
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if 0 in (left, right):
        return 0
    if 1 in (left, right):
        return right if left == 1 else left
    return f"{paren(str(left))} * {paren(str(right))}"


def plus(left: Number, right: Number) -> Number:
    """Return the sum."""
    left, right = _folded(left), _folded(right)
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if 0 in (left, right):
        return right if left == 0 else left
    return f"{left} + {right}"


def _folded(value: Number) -> Number:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\(?-?\d+\)?", value) and "(" not in value else value


def row_major(sizes: Sequence[Number]) -> tuple[Number, ...]:
    """Return the strides of a row-major buffer."""
    strides: list[Number] = []
    stride: Number = 1
    for size in reversed(sizes):
        strides.append(stride)
        stride = times(stride, size)
    return tuple(reversed(strides))


Index = Callable[[ir.Value], str]


def _mixed(op: ir.Operation, name: str, dynamic: Sequence[ir.Value], index: Index) -> list[Number]:
    """Return static numbers with dynamic ones in their places."""
    values = iter(dynamic)
    marker = ir.ShapedType.get_dynamic_size()
    stride_marker = ir.ShapedType.get_dynamic_stride_or_offset()
    static = list(ir.DenseI64ArrayAttr(op.attributes[name]))
    return [index(next(values)) if size in (marker, stride_marker) else size for size in static]


def _segments(op: ir.Operation) -> list[list[ir.Value]]:
    lengths = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands, segments = iter(op.operands), list[list[ir.Value]]()
    for length in lengths:
        segments.append([next(operands) for _ in range(length)])
    return segments


def _subview(op: ir.Operation, source: Buffer, index: Index) -> Buffer:
    _, *dynamic = _segments(op)
    names = ("static_offsets", "static_sizes", "static_strides")
    offsets, sizes, strides = (_mixed(op, name, part, index) for name, part in zip(names, dynamic, strict=True))
    offset = source.offset
    for start, stride in zip(offsets, source.strides, strict=True):
        offset = plus(offset, times(start, stride))
    steps = [times(stride, step) for stride, step in zip(source.strides, strides, strict=True)]
    kept = _kept_axes(sizes, steps, ir.MemRefType(op.results[0].type))
    return replace(
        source, offset=offset, sizes=tuple(sizes[axis] for axis in kept), strides=tuple(steps[axis] for axis in kept)
    )


def _kept_axes(sizes: Sequence[Number], steps: Sequence[Number], result: ir.MemRefType) -> list[int]:
    """Return the axes that a subview keeps; it may drop axes of size 1, told apart by strides."""
    if result.rank == len(sizes):
        return list(range(len(sizes)))
    strides, _ = result.get_strides_and_offset()
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    kept: list[int] = []
    axis = 0
    for position in range(result.rank):
        while True:
            size = "?" if result.is_dynamic_dim(position) else result.shape[position]
            same_size = sizes[axis] == size or (size == "?" and isinstance(sizes[axis], str))
            step = steps[axis]
            same_step = strides[position] == dynamic or isinstance(step, str) or step == strides[position]
            left = len(sizes) - axis - 1 >= result.rank - position
            if not left or (same_size and (same_step or sizes[axis] != 1)):
                break
            if same_size and sizes[axis] != 1:
                break
            axis += 1
        kept.append(axis)
        axis += 1
    return kept


def _reinterpret_cast(op: ir.Operation, source: Buffer, index: Index) -> Buffer:
    _, *dynamic = _segments(op)
    names = ("static_offsets", "static_sizes", "static_strides")
    offsets, sizes, strides = (_mixed(op, name, part, index) for name, part in zip(names, dynamic, strict=True))
    return replace(source, offset=offsets[0], sizes=tuple(sizes), strides=tuple(strides))


def _groups(op: ir.Operation) -> list[list[int]]:
    return [[ir.IntegerAttr(axis).value for axis in ir.ArrayAttr(group)] for group in op.attributes["reassociation"]]


def _collapse(op: ir.Operation, source: Buffer, _: Index) -> Buffer:
    sizes: list[Number] = []
    strides: list[Number] = []
    for group in _groups(op):
        size: Number = 1
        for axis in group:
            size = times(size, source.sizes[axis])
        wide = [axis for axis in group if source.sizes[axis] != 1]
        sizes.append(size)
        strides.append(source.strides[wide[-1] if wide else group[-1]])
    return replace(source, sizes=tuple(sizes), strides=tuple(strides))


def _expand(op: ir.Operation, source: Buffer, index: Index) -> Buffer:
    sizes = _mixed(op, "static_output_shape", list(op.operands)[1:], index)
    strides: list[Number] = [0] * len(sizes)
    for group, stride in zip(_groups(op), source.strides, strict=False):
        for axis in reversed(group):
            strides[axis] = stride
            stride = times(stride, sizes[axis])
    if not source.sizes:
        strides = [1] * len(sizes)
    return replace(source, sizes=tuple(sizes), strides=tuple(strides))


def _transpose(op: ir.Operation, source: Buffer, _: Index) -> Buffer:
    order = ir.AffineMapAttr(op.attributes["permutation"]).value.results
    axes = [ir.AffineDimExpr(axis).position for axis in order]
    return replace(
        source, sizes=tuple(source.sizes[axis] for axis in axes), strides=tuple(source.strides[axis] for axis in axes)
    )


def _cast(op: ir.Operation, source: Buffer, _: Index) -> Buffer:
    """A cast may tell sizes that were not known."""
    kind = ir.MemRefType(op.results[0].type)
    sizes = tuple(size if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis, size in enumerate(source.sizes))
    return replace(source, sizes=sizes)


VIEWS: Mapping[str, Callable[[ir.Operation, Buffer, Index], Buffer]] = {
    "memref.subview": _subview,
    "memref.reinterpret_cast": _reinterpret_cast,
    "memref.collapse_shape": _collapse,
    "memref.expand_shape": _expand,
    "memref.transpose": _transpose,
    "memref.cast": _cast,
}
"""Views, as functions of their source."""


def check_layout(kind: ir.MemRefType) -> None:
    """Raise `UsageError` unless a buffer is in main memory, and its elements have a type of C."""
    if kind.memory_space is not None:
        raise UsageError(f"C source has one kind of memory, and {kind} is in another")
    c_type(kind.element_type)


def _reshape(writer: FunctionWriter, op: ir.Operation) -> None:
    """Read the sizes of a buffer from another: in variables, since that memory may be written later."""
    source, shape = writer.buffer(op.operands[0]), writer.buffer(op.operands[1])
    kind = ir.MemRefType(op.results[0].type)
    sizes: list[Number] = list(kind.shape)
    buffer = writer.new_name("b")
    for axis in range(kind.rank):
        if kind.is_dynamic_dim(axis):
            name = f"{buffer}_d{axis}"
            writer.line(f"const ptrdiff_t {name} = (ptrdiff_t){shape.at([axis])};")
            sizes[axis] = name
    writer.name_buffer(op.results[0], replace(source, sizes=tuple(sizes), strides=row_major(sizes)))


def _metadata(writer: FunctionWriter, op: ir.Operation) -> None:
    """Name the parts of a buffer: its memory, offset, sizes and strides."""
    buffer = writer.buffer(op.operands[0])
    base, *numbers = op.results
    writer.name_buffer(base, Buffer(buffer.pointer, buffer.element, (), ()))
    for value, number in zip(numbers, (buffer.offset, *buffer.sizes, *buffer.strides), strict=True):
        writer.name_scalar(value, str(number))


SIZES = {"memref.reshape": _reshape, "memref.extract_strided_metadata": _metadata}
"""The statement of each operation that reads or changes sizes."""
