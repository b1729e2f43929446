"""Copies of the columns that tiles of a matmul or a convolution share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.indexing_maps import indexing_maps, loop_of
from fx_importer.rewrites.llvm.processor import processor_of

_BYTES = 1 << 15
"""The most bytes of a panel, which is on the stack, and in the first cache."""
_FEWEST_ROWS, _FAR = 1 << 6, 1 << 8
"""Rows, and bytes between them, from which on caches have no room for lines of which a tile reads a part."""
_FEWEST_READS = 8
"""Tiles that read a panel, from which on it takes less time than it saves."""

Buffers = dict[tuple[ir.Operation, str], ir.Value]
"""The memory of panels, by function and type of elements."""


@dataclass(frozen=True)
class Panel:
    """A copy of the columns of tiles, in the order of the summed loops, for a part of their iterations."""

    buffer: ir.Value
    loops: list[int]
    """The innermost summed loops."""
    counts: list[int]
    """Of `loops`: a part of the first, and all of the others. Each iteration has a row of the panel."""
    lanes: int
    vectors: int
    """Of a row."""

    @classmethod
    def of(
        cls,
        op: ir.Operation,
        operand: int,
        summed: Sequence[tuple[int, int]],
        reads: int,
        lanes: int,
        vectors: int,
        buffers: Buffers,
    ) -> Panel | None:
        """Return the panel of columns of ``operand``, which ``reads`` tiles read; None if it saves no time.

        ``summed`` are the loops of the sum and their iterations, and ``lanes * vectors`` the columns.
        """
        kind = ir.MemRefType(op.operands[operand].type)
        element = str(kind.element_type)
        nbytes = int(element[1:]) // 8
        processor = processor_of(op)
        if processor is None or processor.threads or reads < _FEWEST_READS:  # threads would share the buffer
            return None
        axes = {
            loop: axis
            for axis, result in enumerate(indexing_maps(op)[operand].results)
            if (loop := loop_of(result)) is not None
        }
        strides, _ = kind.get_strides_and_offset()
        loops, counts = _innermost(summed, _BYTES // (lanes * vectors * nbytes))
        distances = [strides[axes[loop]] * nbytes for loop in loops if loop in axes]
        if len(distances) < len(loops) or math.prod(counts) < _FEWEST_ROWS or max(distances) < _FAR:
            return None
        function = op
        while function.name != "func.func":
            function = function.parent
        if (function, element) not in buffers:
            start = LoopEmitter(ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), function.location)
            memory = start.type(f"memref<{_BYTES // nbytes}x{element}>")
            attributes = {"operandSegmentSizes": start.segments(0, 0), "alignment": start.i64(64)}
            buffers[function, element] = start.op("memref.alloca", [memory], [], attributes).result
        return cls(buffers[function, element], loops, counts, lanes, vectors)

    @property
    def rows(self) -> int:
        return math.prod(self.counts)

    def places(self, emit: LoopEmitter, first: Mapping[int, ir.Value], at: Sequence[ir.Value]) -> dict[int, ir.Value]:
        """Emit the counters of the summed loops at the iteration ``at`` of a panel that begins at ``first``."""
        split, *others = self.loops
        return {**first} | {split: emit.index_op("addi", first[split], at[0])} | dict(zip(others, at[1:], strict=True))

    def index(self, emit: LoopEmitter, at: Sequence[ir.Value], vector: int) -> ir.Value:
        """Emit the index in `buffer` of a vector of the iteration ``at``."""
        row = at[0]
        for count, counter in zip(self.counts[1:], at[1:], strict=True):
            row = emit.index_op("addi", emit.index_op("muli", row, count), counter)
        return emit.index_op("addi", emit.index_op("muli", row, self.lanes * self.vectors), vector * self.lanes)


def _innermost(summed: Sequence[tuple[int, int]], rows: int) -> tuple[list[int], list[int]]:
    """Return the innermost loops of ``summed``, and iterations of them, of which there are ``rows`` at most."""
    loops: list[int] = []
    counts: list[int] = []
    for loop, size in reversed(summed):
        count = next(number for number in range(min(size, max(rows, 1)), 0, -1) if size % number == 0)
        loops.insert(0, loop)
        counts.insert(0, count)
        rows //= count
        if count < size:
            break
    return loops, counts
