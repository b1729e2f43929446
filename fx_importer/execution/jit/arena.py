"""Memory that the caller provides: one block for the buffers that a function frees itself, and one for each result."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fx_importer.execution.constant_arguments import append_argument
from fx_importer.execution.memref import DTYPES
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit import producer, replace, terminator
from fx_importer.mlir.emit_arith import ArithOps

_ALIGNMENT = 64


@dataclass
class _Buffer:
    allocation: ir.Operation
    release: ir.Operation
    first: int
    last: int
    """The numbers of the operations that allocate and free it."""
    size: int
    offset: int = 0


def plan_arena(function: func_d.FuncOp) -> int:
    """Move the buffers of ``function`` into a new last argument; return its bytes. Calls may not share that memory.

    Buffers overlap if none is used after the other is written. Those of dynamic size, those in loops and results stay.
    """
    buffers = _buffers(function) if len(function.body.blocks) == 1 else []
    size = _place(buffers)
    with function.context, function.location:
        argument = append_argument(function, ir.MemRefType.get([size], ir.IntegerType.get_signless(8)))
        for each in buffers:
            kind = ir.MemRefType(each.allocation.results[0].type)
            view = view_of_block(ArithOps.before(each.allocation), argument, each.offset, kind)
            each.release.erase()
            replace(each.allocation, view)
    return size


def place_results(function: func_d.FuncOp) -> tuple[int, ...]:
    """Move the buffers that ``function`` returns into new last arguments; return which results these are, in order.

    Buffers of dynamic size stay, and those that several results share, or may share.
    """
    if len(function.body.blocks) != 1:
        return ()
    returned = list(terminator(function.entry_block).operands)
    memory = [memory_of(value) if isinstance(value.type, ir.MemRefType) else value for value in returned]
    if any(each is None for each in memory):
        return ()
    placed: list[int] = []
    for position, value in enumerate(returned):
        buffer = _reshaped(value)
        if memory[position] != buffer or memory.count(buffer) > 1 or not isinstance(buffer.type, ir.MemRefType):
            continue
        size, kind = _bytes(ir.MemRefType(value.type)), ir.MemRefType(buffer.type)
        if size is None or size != _bytes(kind):
            continue
        with function.context, function.location:
            argument = append_argument(function, ir.MemRefType.get([size], ir.IntegerType.get_signless(8)))
            allocation = buffer.owner
            replace(allocation, view_of_block(ArithOps.before(allocation), argument, 0, kind))
        placed.append(position)
    return tuple(placed)


def memory_of(buffer: ir.Value) -> ir.Value | str | None:
    """Return what stands for the memory of a buffer: an allocation, or all arguments; None if it is unknown."""
    while not isinstance(buffer.owner, ir.Block) and buffer.owner.name in _VIEWS:
        if DISJOINT in buffer.owner.attributes:
            return buffer
        buffer = buffer.owner.operands[0]
    if not isinstance(buffer.owner, ir.Block):
        return buffer if buffer.owner.name == "memref.alloc" else None
    function = buffer.owner.owner
    return "arguments" if isinstance(function, func_d.FuncOp) else None


def _reshaped(buffer: ir.Value) -> ir.Value:
    """Return the buffer whose elements, in the same order, ``buffer`` has in another shape; others as they are."""
    while producer(buffer) in ("memref.collapse_shape", "memref.expand_shape"):
        buffer = buffer.owner.operands[0]
    return buffer


_VIEWS = tuple(
    f"memref.{name}"
    for name in ("cast", "collapse_shape", "expand_shape", "reinterpret_cast", "subview", "transpose", "view")
)


def _buffers(function: func_d.FuncOp) -> list[_Buffer]:
    block = function.entry_block
    numbers = {op.operation: number for number, op in enumerate(block)}
    found: list[_Buffer] = []
    for op, number in numbers.items():
        if op.name != "memref.alloc" or (size := _bytes(ir.MemRefType(op.results[0].type))) is None:
            continue
        releases = [use.owner.operation for use in op.results[0].uses if use.owner.name == "memref.dealloc"]
        if len(releases) == 1 and releases[0] in numbers:
            found.append(_Buffer(op, releases[0], number, numbers[releases[0]], size))
    return found


def _bytes(kind: ir.MemRefType) -> int | None:
    """Return the size of a buffer, aligned; None for one that is dynamic or of another layout."""
    dtypes = DTYPES.get(str(kind.element_type))
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank, kind.context))
    if not kind.has_static_shape or dtypes is None or kind.layout != identity or kind.memory_space is not None:
        return None
    return -(-math.prod(kind.shape) * dtypes[0].itemsize // _ALIGNMENT) * _ALIGNMENT


def _place(buffers: list[_Buffer]) -> int:
    """Set the offsets, of the largest buffer first: the lowest that is free. Return the size of the block."""
    placed: list[_Buffer] = []
    for each in sorted(buffers, key=lambda buffer: -buffer.size):
        offset = 0
        overlapping = (other for other in placed if other.first < each.last and each.first < other.last)
        for other in sorted(overlapping, key=lambda buffer: buffer.offset):
            if other.offset - offset >= each.size:
                break
            offset = max(offset, other.offset + other.size)
        each.offset = offset
        placed.append(each)
    return max((each.offset + each.size for each in placed), default=0)


DISJOINT = "fx_importer.disjoint"
"""The attribute of views that share no memory with others, as long as both are in use."""


def view_of_block(emit: ArithOps, block: ir.Value, start: int, buffer_type: ir.MemRefType) -> ir.Value:
    """Return the buffer that begins ``start`` bytes after the beginning of ``block``, and overlaps no other."""
    attributes = {DISJOINT: ir.UnitAttr.get(emit.context)}
    return emit.op("memref.view", [buffer_type], [block, emit.index(start)], attributes).result
