"""Expected failures of programs, including those after a failed import."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.causes import Cause
from fx_importer.diagnostics.explanation import Expected
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.mlir.bindings import ir


def expected(
    programs: Mapping[str, ExportedProgram],
    import_: Callable[[Mapping[str, ExportedProgram]], ir.Operation],
    causes: Callable[[ir.Operation], tuple[Cause, ...]],
) -> Expected:
    """Return the nodes and operators of ``programs`` that the import or the lowering does not support.

    Nodes that ``import_`` does not support are replaced by zeros if their sizes are static, to check the rest.
    """
    unsupported_nodes: list[UnsupportedNode] = []
    cut: set[str] = set()
    while True:
        try:
            return Expected(tuple(unsupported_nodes), causes(import_(programs)))
        except UnsupportedProgramError as error:
            unsupported_nodes.extend(node for node in error.unsupported_nodes if node.node not in cut)
            nodes = {node.node for node in error.unsupported_nodes if node.node} - cut
            if not nodes:
                return Expected(tuple(unsupported_nodes))
            cut |= nodes
            programs = {name: _without(program, nodes) for name, program in programs.items()}


def _without(program: ExportedProgram, names: Collection[str]) -> ExportedProgram:
    """Return ``program`` with the results of these nodes replaced by zeros where their sizes are static."""

    def rewrite(graph: fx.Graph, _module: fx.GraphModule) -> None:
        for node in list(graph.nodes):
            if node.name in names and node.op == "call_function":
                for value in _tensors(node):
                    _replace_by_zeros(graph, value)
        graph.eliminate_dead_code()

    return with_rewritten_graphs(program, rewrite)


def _tensors(node: fx.Node) -> Iterator[fx.Node]:
    """Yield ``node``, or its ``getitem`` users if it has several results."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        yield node
    else:
        yield from (user for user in list(node.users) if user.target is operator.getitem)


def _replace_by_zeros(graph: fx.Graph, node: fx.Node) -> None:
    example = node.meta.get("val")
    if not isinstance(example, torch.Tensor) or not all(isinstance(size, int) for size in example.shape):
        return
    settings = {"dtype": example.dtype, "device": example.device, "pin_memory": False}
    with graph.inserting_after(node):
        zeros = graph.call_function(torch.ops.aten.full.default, (list(example.shape), 0), settings)
    zeros.meta = dict(node.meta)
    node.replace_all_uses_with(zeros)
    graph.erase_node(node)
    zeros.name = node.name
