"""Inlining of regions, in which export wraps code under ``torch.no_grad`` and the like."""

from __future__ import annotations

from fx_importer.fx_graph.regions import with_inlined_regions
from fx_importer.fx_passes.fx_pass import FxPass

INLINE_REGIONS = FxPass("inline-regions", lambda program, _: with_inlined_regions(program))
