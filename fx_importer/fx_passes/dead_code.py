"""Elimination of nodes without users and side effects."""

from __future__ import annotations

from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    def eliminate(graph: fx.Graph, owner: fx.GraphModule) -> None:
        graph.eliminate_dead_code()

    return with_rewritten_graphs(program, eliminate, in_place=context.owns(program))


ELIMINATE_DEAD_CODE = FxPass("eliminate-dead-code", _run)
