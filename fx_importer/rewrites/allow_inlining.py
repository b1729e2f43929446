"""Calls of functions, which layers that are outlined become."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir

NO_INLINE = "no_inline"
"""MLIR's own attribute of functions that its inliner leaves alone."""


def allow_inlining(module: ir.Operation) -> None:
    """Leave it to who takes the module whether to inline its functions: our own pipelines are through with it.

    StableHLO's portable artifact cannot hold the attribute either.
    """
    for op in module.regions[0].blocks[0].operations:
        if NO_INLINE in op.attributes:
            del op.attributes[NO_INLINE]
