"""Memory that the caller provides: for the buffers that a function frees itself, and a block for each result.

Buffers of static size share one block. Buffers of dynamic size are in slots: memory that calls keep and make larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.constant_arguments import append_argument
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import producer, replace, terminator
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.llvm.entry_point import entry_point, write_fact

ALIGNMENT = 64
"""Of buffers, in bytes: a cache line, and the longest vector."""
ARENA, SLOTS, PLACED_RESULTS = "arena", "slots", "placed_results"
"""Names of facts: see `fx_importer.rewrites.llvm.entry_point.read_fact`."""


@dataclass
class _Buffer:
    allocation: ir.Operation
    release: ir.Operation
    first: int
    last: int
    """The numbers of the operations that allocate and free it."""
    offset: int = 0

    @property
    def type(self) -> ir.MemRefType:
        return ir.MemRefType(self.allocation.results[0].type)

    @property
    def size(self) -> int:
        """The aligned bytes of a buffer of static size."""
        return _aligned_bytes(self.type)

    def move(self, view: ir.Value) -> None:
        """Use ``view`` in place of the buffer."""
        self.release.erase()
        replace(self.allocation, view)


@rewrite("fx-importer-plan-arena")
def plan_arena(module: ir.Operation) -> None:
    """Move the buffers of the entry point into a new last argument. Calls may not share that memory.

    The fact `ARENA` of the module is its bytes.

    Buffers overlap if none is used after the other is written. Dynamic buffers, buffers in loops and results stay.
    """
    function = entry_point(module)
    buffers = [buffer for buffer in _buffers(function) if buffer.type.has_static_shape]
    size = _place(buffers)
    with function.context, function.location:
        argument = append_argument(function, ir.MemRefType.get([size], ir.IntegerType.get_signless(8)))
        for buffer in buffers:
            buffer.move(view_of_block(ArithOps.before(buffer.allocation), argument, buffer.offset, buffer.type))
    write_fact(module, ARENA, size)


@rewrite("fx-importer-plan-slots")
def plan_slots(module: ir.Operation) -> None:
    """Move the buffers of dynamic size of the entry point into slots, a new last argument.

    The fact `SLOTS` of the module is how many there are.

    The argument is an array of descriptors, zero at first. A slot has memory for the largest buffer that it had so far,
    which the loader frees. Buffers share a slot if none is used after the other is written. Without dynamic buffers, no
    argument is added.
    """
    function = entry_point(module)
    buffers = [buffer for buffer in _buffers(function) if not buffer.type.has_static_shape]
    if not buffers:
        return
    ends: list[int] = []
    """The number of the operation that frees the last buffer of each slot."""
    slots: list[int] = []
    for buffer in buffers:
        slot = next((slot for slot, end in enumerate(ends) if end < buffer.first), len(ends))
        ends[slot : slot + 1] = [buffer.last]
        slots.append(slot)
    with function.context, function.location:
        ArithOps.before(function.operation).parsed(_DEFINITION)
        block_type = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8))
        argument = append_argument(function, ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], block_type))
        for buffer, slot in zip(buffers, slots, strict=True):
            emit, sizes = ArithOps.before(buffer.allocation), list(buffer.allocation.operands)
            size = emit.index(_bytes(buffer.type))
            for factor in sizes:
                size = emit.index_op("muli", size, factor)
            block = emit.call_function(_GROW, [block_type], [argument, emit.index(slot), size]).result
            buffer.move(view_of_block(emit, block, 0, buffer.type, sizes))
    write_fact(module, SLOTS, len(ends))


_GROW = "__fx_importer_grow"
_DEFINITION = f"""
func.func private @{_GROW}(
    %slots: memref<?xmemref<?xi8>>, %slot: index, %bytes: index) -> memref<?xi8> attributes {{no_inline}} {{
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %old = memref.load %slots[%slot] : memref<?xmemref<?xi8>>
  %capacity = memref.dim %old, %zero : memref<?xi8>
  %fits = arith.cmpi sle, %bytes, %capacity : index
  %block = scf.if %fits -> memref<?xi8> {{
    scf.yield %old : memref<?xi8>
  }} else {{
    memref.dealloc %old : memref<?xi8>
    %half = arith.divui %capacity, %two : index
    %more = arith.addi %capacity, %half : index
    %size = arith.maxsi %bytes, %more : index
    %new = memref.alloc(%size) {{alignment = 64 : i64}} : memref<?xi8>
    memref.store %new, %slots[%slot] : memref<?xmemref<?xi8>>
    scf.yield %new : memref<?xi8>
  }}
  return %block : memref<?xi8>
}}
"""
"""Returns the memory of a slot. If that is less than ``%bytes``, one and a half times as much, or more, replaces it:
sizes that grow from call to call do not allocate in each."""


@rewrite("fx-importer-place-results")
def place_results(module: ir.Operation) -> None:
    """Have the entry point write its results to new last arguments, and return nothing.

    LLVM takes a time that is quadratic in the number of values that a function returns.

    The fact `PLACED_RESULTS` of the module is which results are written into memory of the caller, in order. These are
    the buffers of static size that no other result shares. The others, buffers that the function allocates and scalars,
    are stored in arguments of one value each, before those of placed results.
    """
    function = entry_point(module)
    ends = [block.operations[len(block.operations) - 1] for block in function.body.blocks]
    returns = [end for end in ends if end.operation.name == "func.return"]
    placed = _placed_results(function)
    with function.context, function.location:
        for position, kind in enumerate(function.type.results):
            if position not in placed:
                argument = append_argument(function, ir.MemRefType.get([], kind))
                for end in returns:
                    ArithOps.before(end.operation).op("memref.store", [], [end.operands[position], argument])
        for buffer in placed.values():
            kind = ir.MemRefType(buffer.type)
            argument = append_argument(function, ir.MemRefType.get([_aligned_bytes(kind)], _byte()))
            replace(buffer.owner, view_of_block(ArithOps.before(buffer.owner), argument, 0, kind))
        for end in returns:
            ArithOps.before(end.operation).op("func.return", [])
            end.operation.erase()
        kind = ir.FunctionType.get([argument.type for argument in function.arguments], [])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "res_attrs" in function.attributes:
            del function.attributes["res_attrs"]
    write_fact(module, PLACED_RESULTS, list(placed))


def _placed_results(function: func_d.FuncOp) -> dict[int, ir.Value]:
    """Return the buffers of results that ``function`` can write into memory of its caller, by position."""
    if len(function.body.blocks) != 1:
        return {}
    returned = list(terminator(function.entry_block).operands)
    memory = [memory_of(value) if isinstance(value.type, ir.MemRefType) else value for value in returned]
    if any(value is None for value in memory):
        return {}
    placed: dict[int, ir.Value] = {}
    for position, value in enumerate(returned):
        buffer = _reshaped(value)
        if memory[position] != buffer or memory.count(buffer) > 1 or not isinstance(buffer.type, ir.MemRefType):
            continue
        kinds = [ir.MemRefType(shaped.type) for shaped in (value, buffer)]
        if (
            all(kind.has_static_shape and _is_dense(kind) for kind in kinds)
            and len(set(map(_aligned_bytes, kinds))) == 1
        ):
            placed[position] = buffer
    return placed


def _byte() -> ir.Type:
    return ir.IntegerType.get_signless(8)


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
    """Return the buffers that ``function``, if it is one block, allocates and frees itself, in that order."""
    if len(function.body.blocks) != 1:
        return []
    numbers = {op.operation: number for number, op in enumerate(function.entry_block)}
    buffers: list[_Buffer] = []
    for op, number in numbers.items():
        if op.name != "memref.alloc" or not _is_dense(ir.MemRefType(op.results[0].type)):
            continue
        releases = [use.owner.operation for use in op.results[0].uses if use.owner.name == "memref.dealloc"]
        if len(releases) == 1 and releases[0] in numbers:
            buffers.append(_Buffer(op, releases[0], number, numbers[releases[0]]))
    return buffers


def _is_dense(kind: ir.MemRefType) -> bool:
    """Return whether a buffer is row-major, in main memory, with elements of a dtype."""
    from fx_importer.mlir.dtypes import DTYPES

    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank, kind.context))
    return str(kind.element_type) in DTYPES and kind.layout == identity and kind.memory_space is None


def _bytes(kind: ir.MemRefType) -> int:
    """Return the product of the static sizes of a buffer, in bytes."""
    from fx_importer.mlir.dtypes import DTYPES

    static = (size for axis, size in enumerate(kind.shape) if not kind.is_dynamic_dim(axis))
    return math.prod(static) * DTYPES[str(kind.element_type)][0].itemsize


def _aligned_bytes(kind: ir.MemRefType) -> int:
    return aligned(_bytes(kind))


def aligned(size: int) -> int:
    """Return the bytes of a buffer of ``size`` bytes, after which another may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _place(buffers: list[_Buffer]) -> int:
    """Set the offsets, of the largest buffer first: the lowest that is free. Return the size of the block."""
    placed: list[_Buffer] = []
    for placing in sorted(buffers, key=lambda buffer: -buffer.size):
        offset = 0
        overlapping = (other for other in placed if other.first < placing.last and placing.first < other.last)
        for other in sorted(overlapping, key=lambda buffer: buffer.offset):
            if other.offset - offset >= placing.size:
                break
            offset = max(offset, other.offset + other.size)
        placing.offset = offset
        placed.append(placing)
    return max((buffer.offset + buffer.size for buffer in placed), default=0)


DISJOINT = "fx_importer.disjoint"
"""The attribute of views that share no memory with others, as long as both are in use."""


def view_of_block(
    emit: ArithOps, block: ir.Value, start: int, buffer_type: ir.MemRefType, sizes: Sequence[ir.Value] = ()
) -> ir.Value:
    """Return the buffer that begins ``start`` bytes after the beginning of ``block``, and overlaps no other.

    ``sizes`` are those that are dynamic.
    """
    attributes = {DISJOINT: ir.UnitAttr.get(emit.context)}
    return emit.op("memref.view", [buffer_type], [block, emit.index(start), *sizes], attributes).result
