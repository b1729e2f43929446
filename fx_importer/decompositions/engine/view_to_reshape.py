"""Replacement of ``view`` by ``reshape``, so that a program can be traced again after strides have changed.

``torch.export`` records a ``view`` where eager's strides allow one. A decomposition may compute the same values with
other strides, as the rule of attention does, and then the recorded ``view`` cannot be traced. MLIR tensors have no
strides: every ``view`` can be a ``reshape``.
"""

from __future__ import annotations

from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.aliasing import aliases_of_mutated, graphs_of, mutated_arguments
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.retracing import run_decompositions


def views_to_reshapes(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program``, sharing its weights, with each ``view`` replaced by ``reshape``.

    A reshape may copy, so a program that mutates memory under a view is made functional first.
    """
    graphs = list(graphs_of(program.graph_module))
    if not any(_views(graph) for graph in graphs):
        return program
    if len(graphs) > 1:
        written = [node for graph in graphs for node in graph.nodes if mutated_arguments(node)]
    else:
        written = aliases_of_mutated(graphs[0]).intersection(_views(graphs[0]))
    if written:
        program = run_decompositions(program, {})
    return with_rewritten_graphs(program, _to_reshapes)


def _views(graph: fx.Graph) -> list[fx.Node]:
    return graph.find_nodes(op="call_function", target=aten.view.default, sort=False)


def _to_reshapes(graph: fx.Graph, owner: fx.GraphModule) -> None:
    del owner
    for node in _views(graph):
        node.target = aten.reshape.default
