"""Matmuls and convolutions in tiles that stay in vector registers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, attributes_of, producer, terminator
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.indexing_maps import indexing_maps, loop_of, loops_in
from fx_importer.mlir.walk import operations, rewrite_with_options
from fx_importer.rewrites.llvm.row_products import registers
from fx_importer.rewrites.native.column_panels import Buffers, Panel
from fx_importer.rewrites.native.filled_buffers import fill_before
from fx_importer.rewrites.native.prefetches import Nest, PrefetchingNest, next_index
from fx_importer.rewrites.native.tile_parts import ColumnTiles, RowTiles

_SMALLEST_WORK = 1 << 12
"""Multiplications below which loops over scalars are as fast."""
_MOST_ROWS = 8
_MANY_ROWS = 1 << 16
"""In place of a dynamic size."""
_ELEMENTS = ("f32", "f64")
"""Types of the elements of tiles."""
_UNROLLED = 8
"""Iterations of the innermost loop of a sum up to which LLVM decides how it is unrolled."""


@rewrite_with_options("fx-importer-tile-sums")
def tile_sums(module: ir.Operation, depthwise_only: bool = False) -> None:
    """Compute each contraction of floats, a ``linalg.generic`` on buffers, in tiles of rows and vectors of columns.

    Columns are the last axis of the result and of one operand, in which they are contiguous; rows are an axis of the
    result that this operand does not have, so that each vector is read once for all rows of a tile. Sums are in
    registers until they are complete. Each sum is in the order of the loops. In a depthwise convolution both
    operands have the columns: vectors are read of the weight once for all rows, and of the image for each.
    """
    buffers: Buffers = {}
    for op in operations(module.operation, ("linalg.generic",)):
        lanes, count = registers(op)
        tiles = _Tiles.of(op, lanes, count) if lanes else None
        if tiles is not None and (tiles.has_columns or not depthwise_only):
            with op.context, op.location:
                tiles.emit(LoopEmitter.before(op), buffers)
            op.erase()
            if tiles.fill is not None:
                tiles.fill.erase()


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
    fill: ir.Operation | None
    """The operation that fills the result before, where each sum is complete in one tile."""

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
        fill = fill_before(op) if has_columns else None  # others may sum one panel after another
        return cls(op, sizes, 1 - vectors, has_columns, vectors, column, row, summed, lanes, registers, fill)

    def emit(self, emit: LoopEmitter, buffers: Buffers) -> None:
        """Emit the loops. ``buffers`` are the memory of panels."""
        rows, columns = self.sizes[self.row], self.sizes[self.column]
        assert isinstance(columns, int)
        tile_rows, tile_vectors = self._tile(rows, columns // self.lanes)
        for part in self._column_parts(columns, tile_vectors):
            blocks: Size = rows // tile_rows if isinstance(rows, int) else emit.index_op("divui", rows, tile_rows)
            panel = self._panel(blocks, part, buffers)
            strips = [RowTiles(0, blocks, tile_rows)]
            if isinstance(rows, int):
                strips += [RowTiles(rows - rest, 1, rest) for rest in (rows % tile_rows,) if rest]
            elif tile_rows > 1:
                first = emit.index_op("muli", blocks, tile_rows)
                strips.append(RowTiles(first, emit.index_op("subi", rows, first), 1))
            if panel is not None:
                self._emit_panels(emit, part, strips, panel)
            else:
                for strip in strips:
                    self._emit_strip(emit, part, strip)

    def _tile(self, rows: Size, vectors: int) -> tuple[int, int]:
        """Return the rows and the vectors of a tile, whose sums take three fourths of the registers at most."""
        sums = self.registers * 3 // 4
        if self.has_columns:
            most = _MOST_ROWS if self.registers > 16 else _MOST_ROWS // 2
            tile = most if not isinstance(rows, int) else _divisor(rows, most)
            return tile, _divisor(vectors, max(sums // tile, 1)) if tile > 2 else min(vectors, sums // tile)
        tiles = [(r, v) for v in range(1, min(vectors, sums) + 1) for r in range(1, min(sums // v, _MOST_ROWS) + 1)]
        return min(tiles, key=lambda tile: (_cycles(rows, vectors, tile), tile[1]))

    def _panel(self, blocks: Size, part: ColumnTiles, buffers: Buffers) -> Panel | None:
        """Return where columns of tiles are copied to; None if reading them where they are takes as long."""
        repeats = [blocks, *(self.sizes[loop] for loop in self._repeats())]
        summed = [(loop, size) for loop in self.summed if isinstance(size := self.sizes[loop], int)]
        known = [size for size in repeats if isinstance(size, int)]
        if part.width == 1 or self.has_columns or len(known) < len(repeats):
            return None
        return Panel.of(self.op, self.vectors, summed, math.prod(known), part.width, part.vectors, buffers)

    def _repeats(self) -> list[int]:
        """Return the loops, other than of rows, whose tiles have the same columns."""
        used = loops_in(indexing_maps(self.op)[self.vectors].results)
        known = (self.row, self.column, *self.summed)
        return [loop for loop in range(len(self.sizes)) if loop not in known and loop not in used]

    def _column_parts(self, columns: int, vectors: int) -> list[ColumnTiles]:
        """Return the parts of the columns."""
        parts: list[ColumnTiles] = []
        start = 0
        for width, number in ((self.lanes, vectors), (self.lanes, 1), (1, columns % self.lanes)):
            step = width * number
            if step and (count := (columns - start) // step):
                parts.append(ColumnTiles(start, count, width, number))
                start += count * step
        return parts

    def _emit_strip(self, emit: LoopEmitter, part: ColumnTiles, strip: RowTiles) -> None:
        """Emit the tiles of some rows and columns."""
        others = [loop for loop in range(len(self.sizes)) if loop not in (self.row, self.column, *self.summed)]
        rest = [*(self.sizes[loop] for loop in others), strip.count]
        if self.has_columns:  # no other tile of columns reads the same elements: they are read in the order of memory
            inside, (*outer, tile, block) = emit.parallel_loops([*rest, part.count], {})
        else:
            inside, (block, *outer, tile) = emit.parallel_loops([part.count, *rest], {})
        place = dict(zip(others, outer, strict=True)) | {self.column: part.first(inside, block)}
        self._emit_tile(inside, place | {self.row: strip.first(inside, tile)}, strip.rows, part, inside.nest)

    def _emit_panels(self, emit: LoopEmitter, part: ColumnTiles, strips: Sequence[RowTiles], panel: Panel) -> None:
        """Emit the tiles of some columns, with a copy of them for all rows."""
        repeats = self._repeats()
        known = (self.row, self.column, *self.summed, *repeats)
        outside = [loop for loop in range(len(self.sizes)) if loop not in known]
        inside, (block_here, *outer) = emit.parallel_loops([part.count, *(self.sizes[loop] for loop in outside)], {})
        place = dict(zip(outside, outer, strict=True)) | {self.column: part.first(inside, block_here)}
        split = self.sizes[panel.loops[0]]
        assert isinstance(split, int)
        whole = self.summed[: -len(panel.loops)]
        panels = [part.count, *(self.sizes[loop] for loop in whole), split // panel.counts[0]]

        def body(deep: LoopEmitter, at: Sequence[ir.Value], _: Sequence[ir.Value]) -> Sequence[ir.Value]:
            first = dict(zip(whole, at, strict=False))
            first[panel.loops[0]] = deep.index_op("muli", at[-1], panel.counts[0])
            self._copy(deep, panel, place, first)
            block, *at_next = next_index(deep, [block_here, *at], panels)
            next_place = place | {self.column: part.first(deep, block)}
            next_first = dict(zip(whole, at_next, strict=False))
            next_first[panel.loops[0]] = deep.index_op("muli", at_next[-1], panel.counts[0])
            prefetch = functools.partial(self._prefetch, panel=panel, place=next_place, first=next_first)
            for strip in strips:
                counts = [*(self.sizes[loop] for loop in repeats), strip.count]
                tiles, (*repeated, tile) = deep.parallel_loops(counts, {})
                here = place | dict(zip(repeats, repeated, strict=True)) | {self.row: strip.first(tiles, tile)}
                nest: Nest = tiles.nest
                if strip is strips[0]:
                    nest = PrefetchingNest(tiles, [*repeated, tile], counts, prefetch)
                self._emit_tile(tiles, here, strip.rows, part, nest, panel, first)
            return []

        inside.nest([*(self.sizes[loop] for loop in whole), split // panel.counts[0]], [], body)

    def _copy(self, emit: LoopEmitter, panel: Panel, place: dict[int, ir.Value], first: dict[int, ir.Value]) -> None:
        """Copy the columns from ``place`` on, from iterations ``first`` of summed loops on, to ``panel``."""
        source = self.op.operands[self.vectors]
        kind = emit.type(f"vector<{panel.lanes}x{ir.MemRefType(source.type).element_type}>")

        def copy(deep: LoopEmitter, at: Sequence[ir.Value], _: Sequence[ir.Value]) -> Sequence[ir.Value]:
            for number, indices in enumerate(self._columns(deep, panel, place, first, at)):
                values = deep.value("vector.load", kind, source, *indices)
                deep.op("vector.store", [], [values, panel.buffer, panel.index(deep, at, number)])
            return []

        emit.nest(panel.counts, [], copy)

    def _prefetch(
        self,
        emit: LoopEmitter,
        at: Sequence[ir.Value],
        panel: Panel,
        place: dict[int, ir.Value],
        first: dict[int, ir.Value],
    ) -> None:
        """Emit prefetches, to the second cache, of what `_copy` copies in its iteration ``at``."""
        texts = {"isWrite": "false", "localityHint": "2 : i32", "isDataCache": "true"}
        attributes = {name: emit.attribute(text) for name, text in texts.items()}
        for indices in self._columns(emit, panel, place, first, at):
            emit.op("memref.prefetch", [], [self.op.operands[self.vectors], *indices], attributes)

    def _columns(
        self,
        emit: LoopEmitter,
        panel: Panel,
        place: dict[int, ir.Value],
        first: dict[int, ir.Value],
        at: Sequence[ir.Value],
    ) -> Iterator[list[ir.Value]]:
        """Emit the indices of the vectors of the iteration ``at`` of the panel from ``place`` and ``first`` on."""
        here = place | panel.places(emit, first, at)
        map_ = indexing_maps(self.op)[self.vectors]
        for number in range(panel.vectors):
            loops = here | {self.column: emit.index_op("addi", place[self.column], number * panel.lanes)}
            yield emit.indices(map_, [loops.get(loop, at[0]) for loop in range(len(self.sizes))])

    def _emit_tile(
        self,
        inside: LoopEmitter,
        place: dict[int, ir.Value],
        rows: int,
        part: ColumnTiles,
        nest: Nest,
        panel: Panel | None = None,
        first: Mapping[int, ir.Value] = MappingProxyType({}),
    ) -> None:
        """Emit the sums of a tile from ``place`` on, with ``panel`` of iterations from ``first`` on."""
        width, vectors = part.width, part.vectors
        at_rows = [inside.index_op("addi", place[self.row], number) for number in range(rows)]
        at_columns = [inside.index_op("addi", place[self.column], number * width) for number in range(vectors)]
        element = str(ir.MemRefType(self.op.operands[2].type).element_type)
        kind = inside.type(element if width == 1 else f"vector<{width}x{element}>")
        load, store = ("memref.load", "memref.store") if width == 1 else ("vector.load", "vector.store")
        places = [place | {self.row: r, self.column: c} for r in at_rows for c in at_columns]
        zero = inside.index(0)

        def indices(deep: LoopEmitter, operand: int, loops: dict[int, ir.Value]) -> list[ir.Value]:
            return deep.indices(indexing_maps(self.op)[operand], [loops.get(at, zero) for at in range(len(self.sizes))])

        result = self.op.operands[2]
        if self.fill is not None:
            begin = self.fill.operands[0]
            sums = [inside.value("vector.broadcast", kind, begin) if width > 1 else begin] * len(places)
        else:
            sums = [inside.value(load, kind, result, *indices(inside, 2, loops)) for loops in places]

        def body(deep: LoopEmitter, at: Sequence[ir.Value], carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            summed = dict(zip(self.summed, at, strict=True)) if panel is None else panel.places(deep, first, at)
            here = place | summed | {self.row: zero}
            source, spread = self.op.operands[self.vectors], self.op.operands[self.spread]

            def column_of(number: int) -> ir.Value:
                """Emit the vector of columns ``number``."""
                if panel is not None:
                    return deep.value(load, kind, panel.buffer, panel.index(deep, at, number))
                loops = here | {self.column: at_columns[number]}
                return deep.value(load, kind, source, *indices(deep, self.vectors, loops))

            def factors_of(row: ir.Value) -> list[ir.Value]:
                """Emit the factor of each vector of columns."""
                if self.has_columns:
                    at = [indices(deep, self.spread, here | {self.row: row, self.column: c}) for c in at_columns]
                    return [deep.value(load, kind, spread, *argument) for argument in at]
                read = deep.value("memref.load", element, spread, *indices(deep, self.spread, here | {self.row: row}))
                factor = self._factor(deep, read)
                return [deep.value("vector.broadcast", kind, factor) if width > 1 else factor] * vectors

            contract = {"fastmath": deep.attribute("#arith.fastmath<contract>")}
            totals = [*carried]

            def add(row: int, number: int, factor: ir.Value, column: ir.Value) -> None:
                product = deep.op("arith.mulf", [kind], [factor, column], contract).result
                at = row * vectors + number
                totals[at] = deep.op("arith.addf", [kind], [totals[at], product], contract).result

            # The fewer of both are in registers with the sums; the others are read one at a time.
            if rows < vectors and not self.has_columns:
                factors = [factors_of(row)[0] for row in at_rows]
                for number in range(vectors):
                    column = column_of(number)
                    for row, factor in enumerate(factors):
                        add(row, number, factor, column)
            else:
                columns = [column_of(number) for number in range(vectors)]
                for row, at_row in enumerate(at_rows):
                    for number, (factor, column) in enumerate(zip(factors_of(at_row), columns, strict=True)):
                        add(row, number, factor, column)
            return totals

        counts = [self.sizes[loop] for loop in self.summed] if panel is None else panel.counts
        sums = nest(counts, sums, body, {} if panel is None or panel.counts[-1] <= _UNROLLED else _once(inside))
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


def _once(emit: LoopEmitter) -> dict[str, ir.Attribute]:
    """Return the attributes of a loop that LLVM does not unroll: two iterations at a time spill sums."""
    return {"loop_annotation": emit.attribute("#llvm.loop_annotation<unroll = <disable = true>>")}


def _divisor(size: int, most: int) -> int:
    """Return the largest divisor of ``size`` up to ``most`` if it is half of that at least, else ``most``."""
    best = max((number for number in range(1, most + 1) if size % number == 0), default=1)
    return best if 2 * best >= min(most, size) else min(most, size)


def _cycles(rows: Size, vectors: int, tile: tuple[int, int]) -> int:
    """Return about how many half cycles an iteration of each sum takes in tiles of ``tile`` rows and vectors.

    Processors multiply and add two vectors, and read two, in a cycle. A sum is there after four, and a loop takes one.
    """

    def of_tile(r: int, v: int) -> int:
        return max(r * v, r + v, 8) + 2 if r and v else 0

    r, v = tile
    blocks, rest = divmod(rows if isinstance(rows, int) else _MANY_ROWS, r)
    return sum(
        count * (blocks * of_tile(r, width) + of_tile(rest, width))
        for count, width in ((vectors // v, v), (vectors % v, 1))
    )


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
