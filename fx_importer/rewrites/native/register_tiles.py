"""Matmuls and convolutions in tiles that stay in vector registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, attributes_of, producer, terminator
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.indexing_maps import indexing_maps, loop_of, loops_in
from fx_importer.mlir.walk import operations, rewrite_with_options
from fx_importer.rewrites.llvm.processor import processor_of
from fx_importer.rewrites.llvm.row_products import registers

_SMALLEST_WORK = 1 << 12
"""Multiplications below which loops over scalars are as fast."""
_MOST_ROWS = 8
_ELEMENTS = {"f32": 4, "f64": 8}
"""Bytes of the elements of tiles."""
_PANEL = 1 << 15
"""The most bytes of `_Panel`, which is on the stack, and in the first cache."""
_DEEP, _FAR = 1 << 10, 1 << 11
"""Rows, and bytes between them, from which on they are on more pages than a processor knows, and meet in caches."""
_FEWEST_READS = 8
"""Tiles that read a panel, from which on it takes less time than it saves."""


@rewrite_with_options("fx-importer-tile-sums")
def tile_sums(module: ir.Operation, depthwise_only: bool = False) -> None:
    """Compute each contraction of floats, a ``linalg.generic`` on buffers, in tiles of rows and vectors of columns.

    Columns are the last axis of the result and of one operand, in which they are contiguous; rows are an axis of the
    result that this operand does not have, so that each vector is read once for all rows of a tile. Sums are in
    registers until they are complete. Each sum is in the order of the loops. In a depthwise convolution both
    operands have the columns: vectors are read of the weight once for all rows, and of the image for each.
    """
    buffers: dict[tuple[ir.Operation, str], ir.Value] = {}
    for op in operations(module.operation, ("linalg.generic",)):
        lanes, count = registers(op)
        tiles = _Tiles.of(op, lanes, count) if lanes else None
        if tiles is not None and (tiles.has_columns or not depthwise_only):
            with op.context, op.location:
                tiles.emit(LoopEmitter.before(op), buffers)
            op.erase()


@dataclass(frozen=True)
class _Panel:
    """A copy of the columns of tiles, without the bytes between their rows, of a part of the summed loop."""

    buffer: ir.Value
    depth: int
    """Rows: iterations of the summed loop."""
    columns: int


@dataclass(frozen=True)
class _Tiles:
    op: ir.Operation
    sizes: list[Size]
    """Of the loops."""
    spread: int
    """The operand that has the rows: each of its elements is for all columns, unless it `has_columns` too."""
    has_columns: bool
    vectors: int
    """The operand that has the columns."""
    column: int
    row: int
    """Loops."""
    summed: list[int]
    lanes: int
    registers: int

    @classmethod
    def of(cls, op: ir.Operation, lanes: int, registers: int) -> _Tiles | None:
        """Return how ``op`` is tiled; None if it is not a contraction, or a small one."""
        kinds = [operand.type for operand in op.operands]
        if len(kinds) != 3 or not all(isinstance(kind, ir.MemRefType) for kind in kinds):
            return None
        elements = {str(ir.MemRefType(kind).element_type) for kind in kinds}
        if len(elements) != 1 or (element := elements.pop()) not in _ELEMENTS:
            return None
        lanes = lanes // 2 if element == "f64" else lanes
        maps = indexing_maps(op)
        sizes = _sizes(op, maps)
        if sizes is None:
            return None
        result = [loop for expression in maps[2].results if (loop := loop_of(expression)) is not None]
        if not result or len(result) != len(maps[2].results):
            return None
        column = result[-1]
        used = [loops_in(map_.results) for map_ in maps[:2]]
        vectors = next((at for at in (1, 0) if column in used[at] and column not in used[1 - at]), None)
        if has_columns := vectors is None:
            vectors = 1
        if not _computes(op, 1 - vectors, alone=has_columns):
            return None
        with_columns = [0, 1] if has_columns else [vectors]
        if not all(_is_last(maps[at], column) and _is_contiguous(kinds[at]) for at in with_columns):
            return None
        if not _is_contiguous(kinds[2]):
            return None
        rows = [loop for loop in result[:-1] if loop not in used[vectors]]
        summed = [loop for loop in range(maps[0].n_dims) if loop not in result]
        columns = sizes[column]
        if not rows or not summed or any(not isinstance(sizes[loop], int) for loop in summed):
            return None
        if not isinstance(columns, int) or columns < lanes:
            return None
        row = max(rows, key=lambda loop: (_preference(sizes[loop]), rows.index(loop)))
        known = math.prod(size for size in sizes if isinstance(size, int))
        if known < _SMALLEST_WORK and all(isinstance(size, int) for size in sizes):
            return None
        return cls(op, sizes, 1 - vectors, has_columns, vectors, column, row, summed, lanes, registers)

    def emit(self, emit: LoopEmitter, buffers: dict[tuple[ir.Operation, str], ir.Value]) -> None:
        """Emit the loops. ``buffers`` are those of panels, by function and element."""
        rows, columns = self.sizes[self.row], self.sizes[self.column]
        assert isinstance(columns, int)
        tile_rows, tile_vectors = self._tile(rows, columns // self.lanes)
        for start, count, width, vectors in self._column_parts(columns, tile_vectors):
            blocks: Size = rows // tile_rows if isinstance(rows, int) else emit.index_op("divui", rows, tile_rows)
            panel = self._panel(emit, blocks, width * vectors, buffers) if width > 1 else None
            self._emit_part(emit, 0, blocks, tile_rows, start, count, width, vectors, panel)
            if isinstance(rows, int):
                if rest := rows % tile_rows:
                    self._emit_part(emit, rows - rest, 1, rest, start, count, width, vectors)
            elif tile_rows > 1:
                first = emit.index_op("muli", blocks, tile_rows)
                self._emit_part(emit, first, emit.index_op("subi", rows, first), 1, start, count, width, vectors)

    def _tile(self, rows: Size, vectors: int) -> tuple[int, int]:
        """Return the rows and the vectors of a tile, whose sums take three fourths of the registers at most."""
        sums = self.registers * 3 // 4
        most = _MOST_ROWS if self.registers > 16 else _MOST_ROWS // 2
        tile = most if not isinstance(rows, int) else _divisor(rows, most)
        return tile, _divisor(vectors, max(sums // tile, 1)) if tile > 2 else min(vectors, sums // tile)

    def _panel(
        self, emit: LoopEmitter, blocks: Size, columns: int, buffers: dict[tuple[ir.Operation, str], ir.Value]
    ) -> _Panel | None:
        """Return where columns of tiles are copied to; None if reading them where they are takes as long."""
        kind = ir.MemRefType(self.op.operands[self.vectors].type)
        element = str(kind.element_type)
        size = _ELEMENTS[element]
        strides, _ = kind.get_strides_and_offset()
        known = [*strides, blocks, *(self.sizes[loop] for loop in self._repeats())]
        if len(self.summed) != 1 or kind.rank < 2 or any(not isinstance(dim, int) or dim < 0 for dim in known):
            return None
        if (processor := processor_of(self.op)) is None or processor.threads:  # threads would share the buffer
            return None
        loops = [loop_of(result) for result in indexing_maps(self.op)[self.vectors].results]
        depth, reads = self.sizes[self.summed[0]], math.prod(known[len(strides) :])
        if self.summed[0] not in loops or not isinstance(depth, int):
            return None
        apart = strides[loops.index(self.summed[0])] * size
        part = _divisor(depth, _PANEL // (columns * size))
        if depth < _DEEP or apart < _FAR or reads < _FEWEST_READS or depth % part or part < 64:
            return None
        function = self.op
        while function.name != "func.func":
            function = function.parent
        if (function, element) not in buffers:
            start = LoopEmitter(ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), function.location)
            memory = start.type(f"memref<{_PANEL // size}x{element}>")
            attributes = {"operandSegmentSizes": start.segments(0, 0), "alignment": start.i64(64)}
            buffers[function, element] = start.op("memref.alloca", [memory], [], attributes).result
        return _Panel(buffers[function, element], part, columns)

    def _repeats(self) -> list[int]:
        """Return the loops, other than of rows, whose tiles have the same columns."""
        used = loops_in(indexing_maps(self.op)[self.vectors].results)
        known = (self.row, self.column, *self.summed)
        return [loop for loop in range(len(self.sizes)) if loop not in known and loop not in used]

    def _column_parts(self, columns: int, vectors: int) -> list[tuple[int, int, int, int]]:
        """Return parts of the columns: the first one, the number of tiles, the lanes and the vectors of a tile."""
        parts: list[tuple[int, int, int, int]] = []
        start = 0
        for width, number in ((self.lanes, vectors), (self.lanes, 1), (1, columns % self.lanes)):
            step = width * number
            if step and (count := (columns - start) // step):
                parts.append((start, count, width, number))
                start += count * step
        return parts

    def _emit_part(
        self,
        emit: LoopEmitter,
        first_row: Size,
        row_blocks: Size,
        rows: int,
        first_column: int,
        column_blocks: int,
        width: int,
        vectors: int,
        panel: _Panel | None = None,
    ) -> None:
        """Emit the tiles of a part of the rows and columns."""
        others = [loop for loop in range(len(self.sizes)) if loop not in (self.row, self.column, *self.summed)]
        inner = self._repeats() if panel is not None else others
        outside = [loop for loop in others if loop not in inner]
        rest = [*(self.sizes[loop] for loop in inner), row_blocks]
        counts = [column_blocks, *(self.sizes[loop] for loop in outside)]
        counts = counts if panel is not None else [*counts, *rest]
        if self.has_columns:  # no other tile of columns reads the same elements: they are read in the order of memory
            inside, (*outer, block) = emit.parallel_loops([*counts[1:], column_blocks], {})
        else:
            inside, (block, *outer) = emit.parallel_loops(counts, {})

        def column_of(deep: LoopEmitter) -> ir.Value:
            return deep.index_op("addi", first_column, deep.index_op("muli", block, width * vectors))

        def tile(deep: LoopEmitter, place: dict[int, ir.Value], row_block: ir.Value, first: ir.Value | None) -> None:
            row = deep.index_op("addi", first_row, deep.index_op("muli", row_block, rows))
            self._emit_tile(deep, place, row, rows, column_of(deep), width, vectors, panel, first)

        if panel is None:
            *outer, row_block = outer
            tile(inside, dict(zip(others, outer, strict=True)), row_block, None)
            return

        def part(deep: LoopEmitter, first: ir.Value, _: Sequence[ir.Value]) -> Sequence[ir.Value]:
            place = dict(zip(outside, outer, strict=True))
            self._copy(deep, panel, place | {self.column: column_of(deep)}, first, width, vectors)
            tiles, (*repeated, row_block) = deep.parallel_loops(rest, {})
            tile(tiles, place | dict(zip(inner, repeated, strict=True)), row_block, first)
            return []

        inside.loop(0, self.sizes[self.summed[0]], panel.depth, [], part)

    def _copy(
        self, emit: LoopEmitter, panel: _Panel, place: dict[int, ir.Value], first: ir.Value, width: int, vectors: int
    ) -> None:
        """Copy the columns from ``place`` on, of rows from ``first`` on, to ``panel``."""
        source, map_ = self.op.operands[self.vectors], indexing_maps(self.op)[self.vectors]
        kind = emit.type(f"vector<{width}x{ir.MemRefType(source.type).element_type}>")

        def copy(deep: LoopEmitter, at: ir.Value, _: Sequence[ir.Value]) -> Sequence[ir.Value]:
            here = place | {self.summed[0]: deep.index_op("addi", first, at)}
            for number in range(vectors):
                loops = here | {self.column: deep.index_op("addi", place[self.column], number * width)}
                counters = [loops.get(loop, first) for loop in range(len(self.sizes))]
                values = deep.value("vector.load", kind, source, *deep.indices(map_, counters))
                deep.op("vector.store", [], [values, panel.buffer, self._in_panel(deep, panel, at, number * width)])
            return []

        emit.loop(0, panel.depth, 1, [], copy)

    @staticmethod
    def _in_panel(emit: LoopEmitter, panel: _Panel, row: ir.Value, column: int) -> ir.Value:
        return emit.index(emit.index_op("addi", emit.index_op("muli", row, panel.columns), column))

    def _emit_tile(
        self,
        inside: LoopEmitter,
        place: dict[int, ir.Value],
        row: ir.Value,
        rows: int,
        column: ir.Value,
        width: int,
        vectors: int,
        panel: _Panel | None,
        first: ir.Value | None,
    ) -> None:
        """Emit the sums of a tile from ``row`` and ``column`` on, with ``panel`` of its rows from ``first`` on."""
        at_rows = [inside.index_op("addi", row, number) for number in range(rows)]
        at_columns = [inside.index_op("addi", column, number * width) for number in range(vectors)]
        element = str(ir.MemRefType(self.op.operands[2].type).element_type)
        kind = inside.type(element if width == 1 else f"vector<{width}x{element}>")
        load, store = ("memref.load", "memref.store") if width == 1 else ("vector.load", "vector.store")
        places = [place | {self.row: r, self.column: c} for r in at_rows for c in at_columns]
        zero = inside.index(0)

        def indices(deep: LoopEmitter, operand: int, loops: dict[int, ir.Value]) -> list[ir.Value]:
            return deep.indices(indexing_maps(self.op)[operand], [loops.get(at, zero) for at in range(len(self.sizes))])

        result = self.op.operands[2]
        sums = [inside.value(load, kind, result, *indices(inside, 2, loops)) for loops in places]

        def body(deep: LoopEmitter, at: Sequence[ir.Value], carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            summed = at if first is None else [deep.index_op("addi", first, at[0])]
            here = place | dict(zip(self.summed, summed, strict=True)) | {self.row: zero}
            source, spread = self.op.operands[self.vectors], self.op.operands[self.spread]
            columns = [
                deep.value(load, kind, source, *indices(deep, self.vectors, here | {self.column: c}))
                if panel is None
                else deep.value(load, kind, panel.buffer, self._in_panel(deep, panel, at[0], number * width))
                for number, c in enumerate(at_columns)
            ]

            def factors_of(row: ir.Value) -> list[ir.Value]:
                """Emit the factor of each vector of columns."""
                if self.has_columns:
                    at = [indices(deep, self.spread, here | {self.row: row, self.column: c}) for c in at_columns]
                    return [deep.value(load, kind, spread, *argument) for argument in at]
                read = deep.value("memref.load", element, spread, *indices(deep, self.spread, here | {self.row: row}))
                factor = self._factor(deep, read)
                return [deep.value("vector.broadcast", kind, factor) if width > 1 else factor] * len(columns)

            contract = {"fastmath": deep.attribute("#arith.fastmath<contract>")}
            factors = [factors_of(row) for row in at_rows]
            pairs = [pair for of_row in factors for pair in zip(of_row, columns, strict=True)]
            products = [deep.op("arith.mulf", [kind], pair, contract).result for pair in pairs]
            return [
                deep.op("arith.addf", [kind], pair, contract).result for pair in zip(carried, products, strict=True)
            ]

        counts = [self.sizes[loop] for loop in self.summed] if panel is None else [panel.depth]
        sums = inside.nest(counts, sums, body)
        for loops, total in zip(places, sums, strict=True):
            inside.op(store, [], [total, result, *indices(inside, 2, loops)])

    def _factor(self, emit: LoopEmitter, element: ir.Value) -> ir.Value:
        """Emit what is multiplied by the columns: an activation function of ``element``, or itself."""
        block = self.op.regions[0].blocks[0]
        values: dict[ir.Value, ir.Value] = {block.arguments[self.spread]: element}
        product = next(
            operand for operand in terminator(block).operands[0].owner.operands if producer(operand) == "arith.mulf"
        )
        for op in block:
            if op.operation == product.owner.operation:
                break
            copied: ir.Operation = op.operation
            operands = [values.get(operand, operand) for operand in copied.operands]
            results = [result.type for result in copied.results]
            copy = emit.op(copied.name, results, operands, attributes_of(copied))
            values.update(zip(copied.results, copy.results, strict=True))
        other = block.arguments[self.vectors]
        factor: ir.Value = next((operand for operand in product.owner.operands if operand != other), other)
        return values.get(factor, factor)


def _divisor(size: int, most: int) -> int:
    """Return the largest divisor of ``size`` up to ``most`` if it is half of that at least, else ``most``."""
    best = max((number for number in range(1, most + 1) if size % number == 0), default=1)
    return best if 2 * best >= min(most, size) else min(most, size)


def _preference(size: Size) -> int:
    """Return how well an axis of ``size`` makes rows of tiles."""
    return _MOST_ROWS if not isinstance(size, int) else min(size, _MOST_ROWS)


def _computes(op: ir.Operation, spread: int, *, alone: bool) -> bool:
    """Return whether ``op`` adds products to its result: of elements of one operand, and of `_factor` of the other.

    If ``alone``, `_factor` is the element itself.
    """
    block = op.regions[0].blocks[0]
    total = terminator(block).operands[0]
    if producer(total) != "arith.addf":
        return False
    result, other = block.arguments[2], block.arguments[1 - spread]
    product = next((operand for operand in total.owner.operands if producer(operand) == "arith.mulf"), None)
    if product is None or result not in list(total.owner.operands) or other not in list(product.owner.operands):
        return False
    if alone and {*product.owner.operands} != {*list(block.arguments)[:2]}:
        return False
    return all(
        inner.operation in (total.owner.operation, product.owner.operation, terminator(block))
        or (
            inner.operation.name.partition(".")[0] in ("arith", "math")
            and not any(operand in (other, result, product, total) for operand in inner.operation.operands)
        )
        for inner in block
    )


def _is_last(map_: ir.AffineMap, column: int) -> bool:
    """Return whether the loop ``column`` is the last index of ``map_``, and in no other."""
    return loop_of(map_.results[-1]) == column and column not in loops_in(map_.results[:-1])


def _is_contiguous(buffer: ir.Type) -> bool:
    kind = ir.MemRefType(buffer)
    return kind.rank > 0 and kind.get_strides_and_offset()[0][-1] == 1


def _sizes(op: ir.Operation, maps: Sequence[ir.AffineMap]) -> list[Size] | None:
    """Return the number of iterations of each loop; None if an index that is arithmetic alone tells."""
    emit = LoopEmitter.before(op)
    by_loop: dict[int, Size] = {}
    for operand, map_ in zip(op.operands, maps, strict=True):
        kind = ir.MemRefType(operand.type)
        for axis, expression in enumerate(map_.results):
            if (loop := loop_of(expression)) is None or isinstance(by_loop.get(loop), int):
                continue
            if not kind.is_dynamic_dim(axis):
                by_loop[loop] = kind.get_dim_size(axis)
            elif loop not in by_loop:
                by_loop[loop] = emit.index(emit.size(operand, axis))
    loops = range(maps[0].n_dims)
    return [by_loop[loop] for loop in loops] if all(loop in by_loop for loop in loops) else None
