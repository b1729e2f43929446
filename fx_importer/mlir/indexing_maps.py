"""Indexing maps of linalg operations."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """Return the maps of a ``linalg.generic`` from loops to the axes of each operand, inputs first."""
    return [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(op.attributes["indexing_maps"])]
