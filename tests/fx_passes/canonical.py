"""Programs in normal form, without the rest of a compilation."""

from __future__ import annotations

from torch.export import ExportedProgram

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.driver import CANONICAL
from fx_importer.fx_passes.inline_regions import INLINE_REGIONS
from fx_importer.fx_passes.runner import run_fx_passes
from fx_importer.options import Options


def canonicalize(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program`` in normal form; the weights are shared."""
    context = Compilation.of(Options()).fx_context({"main": program})
    return run_fx_passes((INLINE_REGIONS, *CANONICAL), {"main": program}, context)["main"]
