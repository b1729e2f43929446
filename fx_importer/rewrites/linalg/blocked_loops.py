"""Loops in blocks, in which lines of transposed operands stay in the first cache until they are read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import is_used, terminator
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.indexing_maps import indexing_maps, loop_of
from fx_importer.mlir.walk import operations, rewrite

_PERIOD, _WAYS = 1 << 12, 8
"""Of the first cache: the bytes after which lines meet in a set, and the lines of a set."""
_LINE = 1 << 6
_MOST_LINES = 1 << 8
"""Lines that stay in the cache while the loop around reads their next elements."""
_BLOCKS = range(4, 33)
"""Iterations of a block."""


@rewrite("fx-importer-block-loops")
def block_loops(module: ir.Operation) -> None:
    """Split the innermost loop of elementwise operations that read an operand in another order than they write.

    Each iteration of that loop reads another cache line, and more lines than a cache has room for are read again for
    the next element of each. Iterations of a block are innermost, around them the loop along the lines. Sizes are
    static.
    """
    for op in operations(module.operation, ("linalg.generic",)):
        if (blocks := _Blocks.of(op)) is not None:
            with op.context, op.location:
                blocks.emit()
            op.erase()


@dataclass(frozen=True)
class _Blocks:
    op: ir.Operation
    sizes: list[int]
    """Of the loops."""
    split: int
    """The loop along which the result is contiguous."""
    along: int
    """The loop along the lines of an operand."""
    block: int

    @classmethod
    def of(cls, op: ir.Operation) -> _Blocks | None:
        """Return the blocks of ``op``; None if its order is as good."""
        kinds = [operand.type for operand in op.operands]
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>", op.context)
        if len(kinds) < 2 or any(kind != parallel for kind in ir.ArrayAttr(op.attributes["iterator_types"])):
            return None
        if len(terminator(op.regions[0].blocks[0]).operands) != 1:  # the last operand would not be the only result
            return None
        if not all(isinstance(kind, ir.MemRefType) for kind in kinds) or operations(op, ("linalg.index",)):
            return None
        buffers = [ir.MemRefType(kind) for kind in kinds]
        maps = indexing_maps(op)
        sizes = _sizes(buffers, maps)
        if sizes is None or not maps[-1].results or len(op.regions[0].blocks[0].arguments) != len(maps):
            return None
        split = loop_of(maps[-1].results[-1])
        if split is None or _stride(buffers[-1], maps[-1], split) != 1:
            return None
        for buffer, map_ in zip(buffers[:-1], maps[:-1], strict=True):
            along = loop_of(map_.results[-1]) if map_.results else None
            apart = _stride(buffer, map_, split)
            if along in (None, split) or apart is None or _stride(buffer, map_, along) != 1:
                continue
            apart *= _bytes(buffer)
            room = min(_WAYS * (_PERIOD // math.gcd(apart, _PERIOD)), _MOST_LINES)
            is_next = all(size == 1 for size in sizes[along + 1 : split])
            if apart < _LINE // 2 or sizes[along] == 1 or (is_next and along < split and sizes[split] <= room):
                continue
            fitting = [size for size in _BLOCKS if sizes[split] % size == 0 and size <= room and size < sizes[split]]
            if fitting:
                return cls(op, sizes, split, along, fitting[-1])
        return None

    def emit(self) -> None:
        """Emit the loops."""
        emit = LoopEmitter.before(self.op)
        outer = [loop for loop in range(len(self.sizes)) if loop not in (self.split, self.along)]
        counts = [*(self.sizes[loop] for loop in outer), self.sizes[self.split] // self.block]
        inside, counters = emit.parallel_loops([*counts, self.sizes[self.along], self.block], {})
        *rest, number, along, within = counters
        loops = dict(zip(outer, rest, strict=True)) | {self.along: along}
        loops[self.split] = inside.index_op("addi", inside.index_op("muli", number, self.block), within)
        at = [loops[loop] for loop in range(len(self.sizes))]
        maps, body = indexing_maps(self.op), self.op.regions[0].blocks[0]
        places = [inside.indices(map_, at) for map_ in maps]
        elements = [
            inside.value("memref.load", argument.type, buffer, *indices) if is_used(argument) else argument
            for buffer, indices, argument in zip(self.op.operands, places, body.arguments, strict=True)
        ]
        (result,) = inside.inline_block(body, elements)
        inside.op("memref.store", [], [result, self.op.operands[-1], *places[-1]])


def _bytes(buffer: ir.MemRefType) -> int:
    element = buffer.element_type
    return max(element.width // 8, 1) if isinstance(element, (ir.FloatType, ir.IntegerType)) else 8


def _stride(buffer: ir.MemRefType, map_: ir.AffineMap, loop: int) -> int | None:
    """Return how many elements of ``buffer`` are between iterations of ``loop``; None if it is not one static axis."""
    axes = [axis for axis, result in enumerate(map_.results) if loop_of(result) == loop]
    strides, _ = buffer.get_strides_and_offset()
    stride = strides[axes[0]] if len(axes) == 1 else -1
    return stride if stride >= 0 else None


def _sizes(buffers: list[ir.MemRefType], maps: list[ir.AffineMap]) -> list[int] | None:
    """Return the static number of iterations of each loop; None if one is dynamic or no index alone."""
    sizes: dict[int, int] = {}
    for buffer, map_ in zip(buffers, maps, strict=True):
        for axis, result in enumerate(map_.results):
            if (loop := loop_of(result)) is not None and not buffer.is_dynamic_dim(axis):
                sizes[loop] = buffer.get_dim_size(axis)
    loops = range(maps[0].n_dims)
    return [sizes[loop] for loop in loops] if all(sizes.get(loop) for loop in loops) else None
