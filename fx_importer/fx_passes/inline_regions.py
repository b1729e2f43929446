"""Inlining of regions, in which export wraps code under ``torch.no_grad`` and the like."""

from __future__ import annotations

from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.regions import inline_regions
from fx_importer.fx_passes.fx_pass import FxPass

INLINE_REGIONS = FxPass(
    "inline-regions",
    lambda program, context: with_rewritten_graphs(program, inline_regions, in_place=context.owns(program)),
)
