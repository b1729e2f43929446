"""Columns and rows of a matmul or a convolution, divided into tiles."""

from __future__ import annotations

from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.loops import LoopEmitter


@dataclass(frozen=True)
class ColumnTiles:
    """Columns in tiles."""

    start: int
    count: int
    """Of tiles."""
    width: int
    vectors: int
    """Of a tile: vectors of so many columns."""

    def first(self, emit: LoopEmitter, tile: ir.Value) -> ir.Value:
        """Emit the first column of the tile with the number ``tile``."""
        return emit.index_op("addi", self.start, emit.index_op("muli", tile, self.width * self.vectors))


@dataclass(frozen=True)
class RowTiles:
    """Rows in tiles."""

    start: Size
    count: Size
    """Of tiles."""
    rows: int
    """Of a tile."""

    def first(self, emit: LoopEmitter, tile: ir.Value) -> ir.Value:
        """Emit the first row of the tile with the number ``tile``."""
        return emit.index_op("addi", self.start, emit.index_op("muli", tile, self.rows))
