"""One block of memory of the caller in place of all allocations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.constant_arguments import append_argument
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Size, replace
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.arena import ALIGNMENT, aligned, view_of_block
from fx_importer.rewrites.llvm.entry_point import entry_point, required_fact, write_fact
from fx_importer.rewrites.llvm.processor import processor_of
from fx_importer.rewrites.native.buffer_offsets import Lifetime, place
from fx_importer.rewrites.native.destinations import INPUTS
from fx_importer.rewrites.native.linkage import EXPORTED
from fx_importer.rewrites.native.size_slices import CheckedSlice, SizeSlice

ARENA = "arena"
"""The fact how many bytes of the arena buffers of static sizes take."""
ARENA_BYTES = "arena_bytes"
"""The function that returns the bytes of the arena, of sizes of arguments; only where some depend on them."""
DIMENSIONS = "arena_dimensions"
"""The fact which sizes `ARENA_BYTES` takes: pairs of an argument and an axis."""

_LOOPS = ("scf.for", "scf.while", "scf.parallel", "scf.forall")
_VIEWS = tuple(
    f"memref.{name}"
    for name in ("cast", "collapse_shape", "expand_shape", "reinterpret_cast", "subview", "transpose", "view")
)


@dataclass
class _Buffer:
    allocation: ir.Operation
    first: int
    last: int
    """The numbers of the operations between which it is in use."""
    offset: int = 0
    sizes: list[ir.Value] = field(default_factory=list[ir.Value])

    @property
    def type(self) -> ir.MemRefType:
        return ir.MemRefType(self.allocation.results[0].type)

    def overlaps(self, other: _Buffer) -> bool:
        """Whether both are in use at some time."""
        return self.first <= other.last and other.first <= self.last


@rewrite("fx-importer-plan-memory")
def plan_memory(module: ir.Operation) -> None:
    """Move all buffers that the entry point allocates into a new last argument, the arena.

    Buffers overlap there if none is used after the other is written. Those of static sizes come first; the others are
    in slots after them, each as large as its largest buffer, which `ARENA_BYTES` and the code compute in the same way.

    Raises:
        UsageError: if the size of a buffer depends on elements of tensors, or a loop returns memory that it allocates.
    """
    function = entry_point(module)
    for op in operations(function.operation, ("memref.dealloc",)):
        op.erase()
    buffers = _Lifetimes(function).buffers()
    static = [buffer for buffer in buffers if buffer.type.has_static_shape]
    dynamic = [buffer for buffer in buffers if not buffer.type.has_static_shape]
    with function.context, function.location:
        kind = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8))
        arena = append_argument(function, kind)
        bits = processor.index_bits if (processor := processor_of(module)) else 64
        begin = _place(static, bits)
        for buffer in static:
            emit = ArithOps.before(buffer.allocation)
            replace(buffer.allocation, view_of_block(emit, arena, buffer.offset, buffer.type))
        dimensions = _place_in_slots(function, arena, dynamic, begin, bits) if dynamic else []
    for op in operations(module, ("memref.alloca",)):
        raise UsageError(f"the memory of {op.name} is not planned")
    write_fact(module, ARENA, begin)
    write_fact(module, DIMENSIONS, dimensions)


class _Lifetimes:
    """When the buffers that a function allocates are in use, by the numbers of its operations in pre-order."""

    def __init__(self, function: func_d.FuncOp):
        self._function = function.operation
        self._numbers: dict[ir.Operation, int] = {}
        self._ends: dict[ir.Operation, int] = {}
        """The number of the last operation inside."""
        self._visit(self._function)

    def _visit(self, op: ir.Operation) -> None:
        self._numbers[op] = len(self._numbers)
        for region in op.regions:
            for block in region:
                for inner in block:
                    self._visit(inner.operation)
        self._ends[op] = len(self._numbers) - 1

    def buffers(self) -> list[_Buffer]:
        """Return the buffers in order."""
        return [self._buffer(op) for op in self._numbers if op.name == "memref.alloc"]

    def _buffer(self, allocation: ir.Operation) -> _Buffer:
        buffer = _Buffer(allocation, len(self._numbers), self._numbers[allocation])  # in use from its first user on
        seen: set[ir.Value] = set()
        queue: list[ir.Value] = [allocation.results[0]]
        while queue:
            value = queue.pop()
            if value in seen:
                continue
            seen.add(value)
            for use in value.uses:
                user = use.owner.operation
                self._extend(buffer, allocation, user)
                queue += self._aliases(user, use.operand_number, allocation)
        return buffer

    def _extend(self, buffer: _Buffer, allocation: ir.Operation, user: ir.Operation) -> None:
        """Have ``buffer`` be in use at ``user``: and in the whole of a loop around it, if it is allocated before."""
        around = {*_parents(allocation)}
        outer = user
        for parent in _parents(user):
            if parent in around:
                break
            if parent.name in _LOOPS:
                outer = parent
        buffer.first = min(buffer.first, self._numbers[outer])
        buffer.last = max(buffer.last, self._ends[outer])

    def _aliases(self, user: ir.Operation, operand: int, allocation: ir.Operation) -> list[ir.Value]:
        """Return the values that ``user`` makes of the memory of its operand."""
        if user.name in _VIEWS or user.name == "arith.select":
            return list(user.results)
        if user.name == "scf.yield":
            parent = user.parent
            if parent.name in _LOOPS:
                if parent in _parents(allocation):
                    raise UsageError(f"a loop returns memory that it allocates ({allocation.location})")
                return [
                    *parent.results,
                    *(argument for region in parent.regions for argument in region.blocks[0].arguments),
                ]
            return [parent.results[operand]]
        if user.name == "scf.condition":
            return [*user.parent.results, *user.parent.regions[1].blocks[0].arguments]
        if user.name in _LOOPS:
            memory = [argument for region in user.regions for argument in region.blocks[0].arguments]
            return [value for value in (*user.results, *memory) if isinstance(value.type, ir.MemRefType)]
        if user.name in ("cf.br", "cf.cond_br", "cf.switch"):
            raise UsageError(f"a branch passes memory that is allocated here ({allocation.location})")
        return [result for result in user.results if isinstance(result.type, ir.MemRefType)]


def _parents(op: ir.Operation) -> list[ir.Operation]:
    """Return the operations around ``op``, the innermost first."""
    parents: list[ir.Operation] = []
    while (parent := op.parent) is not None:
        op = parent.operation
        parents.append(op)
    return parents


def _element_bytes(kind: ir.MemRefType, index_bits: int) -> int:
    from fx_importer.mlir.dtypes import DTYPES

    name = str(kind.element_type)
    if name == "index":
        return index_bits // 8
    if isinstance(kind.element_type, ir.IntegerType) and name not in DTYPES:  # TOSA's i48
        return 1 << max((kind.element_type.width - 1).bit_length() - 3, 0)
    if name not in DTYPES:
        raise UsageError(f"a buffer has elements of type {name}, which have no size in memory")
    return DTYPES[name][0].itemsize


def _place(buffers: Sequence[_Buffer], index_bits: int) -> int:
    """Set the offsets, and return the size of the block."""
    sizes = [aligned(math.prod(buffer.type.shape) * _element_bytes(buffer.type, index_bits)) for buffer in buffers]
    lifetimes = [Lifetime(size, buffer.first, buffer.last) for size, buffer in zip(sizes, buffers, strict=True)]
    offsets, end = place(lifetimes)
    for buffer, offset in zip(buffers, offsets, strict=True):
        buffer.offset = offset
    return end


def _place_in_slots(
    function: func_d.FuncOp, arena: ir.Value, buffers: Sequence[_Buffer], begin: int, index_bits: int
) -> list[tuple[int, int]]:
    """Move ``buffers`` of dynamic sizes into slots from ``begin`` on; return the sizes of arguments that matter."""
    slots: list[list[_Buffer]] = []
    for buffer in buffers:
        slot = next((slot for slot in slots if not any(map(buffer.overlaps, slot))), None)
        if slot is None:
            slots.append(slot := [])
        slot.append(buffer)
    inputs = required_fact(function.operation.parent, INPUTS)
    dimensions = [
        (number, axis)
        for number, argument in enumerate(list(function.arguments)[:inputs])
        if isinstance(argument.type, ir.MemRefType)
        for axis in range(argument.type.rank)
        if argument.type.is_dynamic_dim(axis)
    ]
    types = [ir.IndexType.get()] * len(dimensions)
    outside = ArithOps(ir.InsertionPoint.at_block_begin(body_of(function.operation.parent)), function.location)
    body, sizes = outside.define_function(ARENA_BYTES, types, [ir.IndexType.get()], {EXPORTED: ir.UnitAttr.get()})
    computed = CheckedSlice(body, dict(zip(dimensions, sizes, strict=True)))
    end = _offsets(computed, slots, begin, index_bits)[-1]
    body.op("func.return", [], [body.select_value(computed.fits, body.index(end), body.index(-1))])
    start = ArithOps(ir.InsertionPoint.at_block_begin(function.entry_block), function.location)
    known = {place: start.index(start.size(function.arguments[place[0]], place[1])) for place in dimensions}
    offsets = _offsets(SizeSlice(start, known), slots, begin, index_bits)
    for slot, offset in zip(slots, offsets, strict=False):
        for buffer in slot:
            emit = ArithOps.before(buffer.allocation)
            view = emit.op("memref.view", [buffer.type], [arena, emit.index(offset), *buffer.allocation.operands])
            view.attributes["fx_importer.disjoint"] = ir.UnitAttr.get()
            replace(buffer.allocation, view.result)
    return dimensions


def _offsets(slice_: SizeSlice, slots: Sequence[Sequence[_Buffer]], begin: int, index_bits: int) -> list[Size]:
    """Emit where each slot begins, and last where the last one ends."""
    emit, offsets = slice_.emit, list[Size]()
    offset: Size = begin
    for slot in slots:
        offsets.append(offset)
        size: Size = 0
        for buffer in slot:
            static = (n for axis, n in enumerate(buffer.type.shape) if not buffer.type.is_dynamic_dim(axis))
            nbytes: Size = math.prod(static) * _element_bytes(buffer.type, index_bits)
            for factor in buffer.allocation.operands:
                nbytes = slice_.product(nbytes, slice_.value(factor))
            size = emit.index_op("maxsi", size, slice_.positive(nbytes))
        blocks = emit.index_op("divui", emit.index_op("addi", size, ALIGNMENT - 1), ALIGNMENT)
        offset = slice_.positive(emit.index_op("addi", offset, emit.index_op("muli", blocks, ALIGNMENT)))
    return [*offsets, offset]
