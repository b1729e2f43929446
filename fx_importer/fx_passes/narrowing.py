"""Report of dtypes that are computed in narrower ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.legalization import Dtypes, dtypes_of, nodes_of


def computed_narrower(program: ExportedProgram, dtypes: Dtypes) -> Iterator[tuple[fx.Node, torch.dtype, torch.dtype]]:
    """Yield every value that is computed in a narrower dtype, with the model's dtype and the narrower one."""
    for node in nodes_of(program):
        for dtype in dtypes_of(node) & {*dtypes.inside}:
            yield node, dtype, dtypes.inside[dtype]


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Return ``program``, with a remark for each dtype that is computed in a narrower one."""
    narrowed: dict[tuple[torch.dtype, torch.dtype], list[fx.Node]] = {}
    for node, wide, narrow in computed_narrower(program, context.dtypes):
        narrowed.setdefault((wide, narrow), []).append(node)
    for (wide, narrow), nodes in narrowed.items():
        lines = [line for node in nodes if (line := unsupported_node(node, "").where)]
        first = f", the first at {lines[0]}" if lines else ""
        count = f"{len(nodes)} values are" if len(nodes) > 1 else "a value is"
        context.remark(f"{context.dtypes.name} has no {wide}: {count} computed in {narrow}{first}")
    return program


REPORT_NARROWING = FxPass(
    "report-narrowing",
    _run,
    lambda context: not context.options.lowering.fallback,  # which computes float64
)
