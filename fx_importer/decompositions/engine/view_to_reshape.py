"""Spells ``view`` as ``reshape``, so that a program can be traced again where strides have changed.

``torch.export`` records a ``view`` where eager's strides allow one. A decomposition may compute the same values with
other strides (that of attention does), and then the recorded ``view`` cannot be traced. An MLIR tensor has no strides:
to us, every ``view`` is a ``reshape``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._export.utils import _is_cia_op
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram

from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs


def respell_views(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with its views spelled as reshapes; the given program is left alone, the weights are shared.

    A reshape may copy. So where the memory under a view is written to, the program is made functional first.
    """
    graphs = list(_graphs(program.graph_module))
    if not any(_views(graph) for graph in graphs):
        return program
    if len(graphs) > 1:
        written = [node for graph in graphs for node in graph.nodes if written_arguments(node)]
    else:
        written = _touching_written_memory(graphs[0]).intersection(_views(graphs[0]))
    if written:
        program = program.run_decompositions({})
    return with_rewritten_graphs(program, _respell)


def is_functional(program: ExportedProgram) -> bool:
    """Whether no operator of ``program`` writes to its arguments."""
    return not any(written_arguments(node) for graph in _graphs(program.graph_module) for node in graph.nodes)


def _graphs(module: fx.GraphModule) -> Iterable[fx.Graph]:
    """Yield the graph of ``module`` and those of the subgraphs of its higher-order operators."""
    return (each.graph for each in module.modules() if isinstance(each, fx.GraphModule))


def _views(graph: fx.Graph) -> list[fx.Node]:
    return graph.find_nodes(op="call_function", target=aten.view.default, sort=False)


def _respell(graph: fx.Graph, owner: fx.GraphModule) -> None:
    del owner
    for node in _views(graph):
        node.target = aten.reshape.default


def written_arguments(node: fx.Node) -> list[fx.Node]:
    """Return the arguments that ``node`` writes to."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return []
    return [value for value, alias in _arguments(node) if alias is not None and alias.is_write]


def _touching_written_memory(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes whose memory some node of ``graph`` writes to; too many rather than too few."""
    groups = memory_groups(graph)
    return set().union(*(groups[written] for node in graph.nodes for written in written_arguments(node)))


def memory_groups(graph: fx.Graph) -> dict[fx.Node, set[fx.Node]]:
    """Return, for each node, the nodes that may share its memory, itself among them."""
    groups: dict[fx.Node, set[fx.Node]] = {}
    for node in graph.nodes:
        groups[node] = {node}
        for base in _bases(node):
            if groups[base] is not groups[node]:
                small, large = sorted((groups[base], groups[node]), key=len)
                large |= small
                groups.update(dict.fromkeys(small, large))
    return groups


def _bases(node: fx.Node) -> list[fx.Node]:
    """Return the arguments whose memory the result of ``node`` may share."""
    if node.target is operator.getitem and _is_new(node.args[0]):
        return []
    if node.target is operator.getitem or isinstance(node.target, HigherOrderOperator):
        return node.all_input_nodes
    if not isinstance(node.target, OpOverload):
        return []
    if torch.Tag.maybe_aliasing_or_mutating in node.target.tags or node.target is aten.type_as.default:
        return node.all_input_nodes[:1]  # at times, though its schema does not say so
    return [value for value, alias in _arguments(node) if alias is not None]


def _is_new(results: Any) -> bool:
    """Whether each of ``results``, of one node, has memory of its own: composites may not say that theirs do not."""
    if not isinstance(results, fx.Node) or not isinstance(results.target, OpOverload) or _is_cia_op(results.target):
        return False
    aliases = [each.alias_info for each in results.target._schema.returns]
    return not any(aliases) and torch.Tag.maybe_aliasing_or_mutating not in results.target.tags


def _arguments(node: fx.Node) -> Iterable[tuple[fx.Node, Any]]:
    """Yield the nodes among the arguments of ``node``, each with what the schema says of its memory."""
    assert isinstance(node.target, OpOverload)
    for position, formal in enumerate(node.target._schema.arguments):
        value = node.args[position] if position < len(node.args) else node.kwargs.get(formal.name)
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, fx.Node):
                yield each, formal.alias_info
