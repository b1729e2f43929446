"""Alias analysis of FX graphs: which nodes may share memory, and which arguments an operator mutates."""

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

_UNDECLARED_VIEWS = frozenset(
    (
        *(aten.broadcast_tensors.default, aten.meshgrid.default, aten.meshgrid.indexing, aten.type_as.default),
        *(aten.atleast_1d.Sequence, aten.atleast_2d.Sequence, aten.atleast_3d.Sequence, aten.sum_to_size.default),
        *(aten.einsum.default, aten.chain_matmul.default, aten.unflatten_dense_tensors.default, aten.chalf.default),
    )
)
"""Composite operators whose results may be views or arguments themselves, which neither schema nor tag declares."""


def is_functional(program: ExportedProgram) -> bool:
    """Return whether no operator of ``program`` mutates its arguments."""
    return not any(mutated_arguments(node) for graph in graphs_of(program.graph_module) for node in graph.nodes)


def graphs_of(module: fx.GraphModule) -> Iterable[fx.Graph]:
    """Return the graphs of ``module`` and of the subgraphs of its higher-order operators."""
    return (each.graph for each in module.modules() if isinstance(each, fx.GraphModule))


def mutated_arguments(node: fx.Node) -> list[fx.Node]:
    """Return the arguments that ``node`` mutates."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return []
    return [value for value, alias in _arguments(node) if alias is not None and alias.is_write]


def alias_sets(graph: fx.Graph) -> dict[fx.Node, set[fx.Node]]:
    """Return, for each node, the set of nodes that may share its memory, including itself."""
    groups: dict[fx.Node, set[fx.Node]] = {}
    for node in graph.nodes:
        groups[node] = {node}
        for base in may_share_memory_with(node):
            if groups[base] is not groups[node]:
                small, large = sorted((groups[base], groups[node]), key=len)
                large |= small
                groups.update(dict.fromkeys(small, large))
    return groups


def aliases_of_mutated(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that may alias memory which a node of ``graph`` mutates (conservatively)."""
    if not (written := [argument for node in graph.nodes for argument in mutated_arguments(node)]):
        return set()
    groups = alias_sets(graph)
    return set().union(*(groups[each] for each in written))


def may_share_memory_with(node: fx.Node) -> list[fx.Node]:
    """Return the arguments whose memory the result of ``node`` may share."""
    if node.target is operator.getitem and _is_new(node.args[0]):
        return []
    if node.target is operator.getitem or isinstance(node.target, HigherOrderOperator):
        return node.all_input_nodes
    if not isinstance(node.target, OpOverload):
        return []
    if node.target in _UNDECLARED_VIEWS:
        return node.all_input_nodes
    if torch.Tag.maybe_aliasing_or_mutating in node.target.tags:
        return node.all_input_nodes[:1]
    return [value for value, alias in _arguments(node) if alias is not None]


def _is_new(results: Any) -> bool:
    """Return whether each of ``results`` of a node is newly allocated; schemas of composites may omit aliases."""
    if not isinstance(results, fx.Node) or not isinstance(results.target, OpOverload) or _is_cia_op(results.target):
        return False
    aliases = [each.alias_info for each in results.target._schema.returns]
    return not any(aliases) and torch.Tag.maybe_aliasing_or_mutating not in results.target.tags


def _arguments(node: fx.Node) -> Iterable[tuple[fx.Node, Any]]:
    """Yield the nodes among the arguments of ``node``, each with its alias annotation in the schema."""
    assert isinstance(node.target, OpOverload)
    for position, formal in enumerate(node.target._schema.arguments):
        value = node.args[position] if position < len(node.args) else node.kwargs.get(formal.name)
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, fx.Node):
                yield each, formal.alias_info
