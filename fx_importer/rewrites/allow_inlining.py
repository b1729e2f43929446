"""Permission to inline the functions that outlined layers become."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import rewrite

NO_INLINE = "no_inline"
"""MLIR's attribute of functions that its inliner leaves alone."""


@rewrite("fx-importer-allow-inlining")
def allow_inlining(module: ir.Operation) -> None:
    """Drop ``no_inline`` from every function: the pipelines of this package are done, and others may inline.

    StableHLO's portable artifact cannot hold the attribute either.
    """
    for op in module.regions[0].blocks[0].operations:
        if NO_INLINE in op.attributes:
            del op.attributes[NO_INLINE]
