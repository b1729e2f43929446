"""Checks of sizes that depend on values, in programs that work for one number only."""

from __future__ import annotations

from torch import fx
from torch.export import ExportedProgram

from fx_importer.frontend.assumptions.decided_sizes import check_decided_sizes, decides_sizes
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Make assumptions of assertions that such numbers are constants, outside of control flow."""
    if not decides_sizes(program.graph):
        return program

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        if owner is program.graph_module:
            check_decided_sizes(graph)

    return with_rewritten_graphs(program, rewrite)


CHECK_DECIDED_SIZES = FxPass("check-decided-sizes", _run)
