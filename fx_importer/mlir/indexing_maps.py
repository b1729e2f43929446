"""Indexing maps of linalg operations, and the named ones that are products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """Return the maps of a ``linalg.generic`` from loops to the axes of each operand, inputs first."""
    return [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(op.attributes["indexing_maps"])]


PRODUCTS = {
    "linalg.matmul": ((0, 2), (2, 1), (0, 1)),
    "linalg.batch_matmul": ((0, 1, 3), (0, 3, 2), (0, 1, 2)),
}
"""The loop that each axis of each operand runs along, without ``indexing_maps``. The last loop is the reduction."""
CONVOLUTIONS = {
    "linalg.conv_1d_ncw_fcw": ("ncs", "fcs"),
    "linalg.conv_2d_nchw_fchw": ("ncss", "fcss"),
    "linalg.conv_2d_nhwc_fhwc": ("nssc", "fssc"),
    "linalg.conv_2d_nhwc_hwcf": ("nssc", "sscf"),
    "linalg.conv_3d_ncdhw_fcdhw": ("ncsss", "fcsss"),
    "linalg.conv_2d_ngchw_gfchw": ("ngcss", "gfcss"),
    "linalg.depthwise_conv_2d_nchw_chw": ("ncss", "css"),
    "linalg.depthwise_conv_2d_nhwc_hwc": ("nssc", "ssc"),
}
"""The axes of input and weight: batch, group, channel, filter, spatial. Results have the axes of the input."""


def axes_of_product(op: ir.Operation) -> tuple[str, str, str] | None:
    """Return the axes of a product's operands, ``"mk"``, ``"kn"`` and ``"mn"``, with ``b`` of a batch.

    None if it has others.
    """
    loops = PRODUCTS[op.name]
    if "indexing_maps" in op.attributes:
        maps = [list(indexing_map.results) for indexing_map in indexing_maps(op)]
        if not all(isinstance(expression, ir.AffineDimExpr) for results in maps for expression in results):
            return None
        loops = tuple(tuple(ir.AffineDimExpr(expression).position for expression in results) for results in maps)
    letters = "mnk" if op.name == "linalg.matmul" else "bmnk"
    left, right, result = ("".join(letters[loop] for loop in axes) for axes in loops)
    return (left, right, result) if len(set(left)) == len(letters) - 1 else None


def loop_of(index: ir.AffineExpr) -> int | None:
    """Return the loop that ``index`` is; None for arithmetic."""
    return index.position if isinstance(index, ir.AffineDimExpr) else None


def loops_in(indices: Sequence[ir.AffineExpr]) -> set[int]:
    """Return the loops that ``indices`` depend on."""
    loops: set[int] = set()
    for index in indices:
        if isinstance(index, ir.AffineBinaryExpr):
            loops |= loops_in([index.lhs, index.rhs])
        elif (loop := loop_of(index)) is not None:
            loops.add(loop)
    return loops
