"""Alias analysis of FX graphs: which nodes may share memory, and which arguments an operator mutates."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._export.utils import _is_cia_op
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram

from fx_importer.fx_graph.operators import aten

UNDECLARED_VIEWS = frozenset(
    (
        *(aten.broadcast_tensors.default, aten.meshgrid.default, aten.meshgrid.indexing, aten.type_as.default),
        *(aten.atleast_1d.Sequence, aten.atleast_2d.Sequence, aten.atleast_3d.Sequence, aten.sum_to_size.default),
        *(aten.einsum.default, aten.chain_matmul.default, aten.unflatten_dense_tensors.default, aten.chalf.default),
    )
)
"""Composite operators whose results may be views or arguments themselves, which neither schema nor tag declares."""
_STATISTICS, _TRAINING = slice(3, 5), 5
_UPDATE_STATISTICS = frozenset(
    (
        *(aten.batch_norm.default, aten.native_batch_norm.default),
        *(aten._batch_norm_impl_index.default, aten.instance_norm.default),
    )
)
"""Normalizations that write to running statistics in training, which their schemas do not declare."""


def is_functional(program: ExportedProgram) -> bool:
    """Return whether no operator of ``program`` mutates its arguments."""
    return not any(mutated_arguments(node) for graph in graphs_of(program.graph_module) for node in graph.nodes)


def graphs_of(module: fx.GraphModule) -> Iterable[fx.Graph]:
    """Return the graphs of ``module`` and of the subgraphs of its higher-order operators."""
    return (part.graph for part in module.modules() if isinstance(part, fx.GraphModule))


def mutated_arguments(node: fx.Node) -> list[fx.Node]:
    """Return the arguments that ``node`` mutates, itself or by its subgraphs."""
    return [argument for argument, _ in writes_of(node)]


def writes_of(node: fx.Node) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Yield each argument that ``node`` mutates, with the operator that writes: ``node``, or one of its subgraphs."""
    target = node.target
    if isinstance(target, HigherOrderOperator):
        yield from _writes_of_subgraphs(node)
    elif isinstance(target, OpOverload) and target._schema.is_mutable:
        yield from ((value, node) for value, alias in _arguments(node) if alias is not None and alias.is_write)
    elif isinstance(target, OpOverload) and updates_running_statistics(target, node.args):
        yield from ((value, node) for value in node.args[_STATISTICS] if isinstance(value, fx.Node))


def updates_running_statistics(target: OpOverload, args: Sequence[Any]) -> bool:
    """Return whether a normalization mutates its running statistics, which its schema does not declare."""
    if target not in _UPDATE_STATISTICS:
        return False
    return len(args) > _TRAINING and bool(args[_TRAINING]) and args[_STATISTICS.start] is not None


def _writes_of_subgraphs(node: fx.Node) -> Iterator[tuple[fx.Node, fx.Node]]:
    if node.target is triton_kernel_wrapper_mutation:
        yield from ((source, node) for source in node.all_input_nodes if isinstance(source.meta.get("val"), Tensor))
    for position, argument in enumerate(node.args):
        if (region := _subgraph(argument)) is not None:
            # A region traced under a mode takes the arguments after it; subgraphs of other operators may not mutate.
            names = [placeholder.name for placeholder in region.find_nodes(op="placeholder")]
            operands = dict(zip(names, node.args[position + 1 :], strict=False))
            for name, writer in mutated_placeholders(region):
                if isinstance(operand := operands.get(name), fx.Node):
                    yield operand, writer


def _subgraph(argument: Any) -> fx.Graph | None:
    """Return the subgraph that an argument of a higher-order operator refers to, or None."""
    if not isinstance(argument, fx.Node) or argument.op != "get_attr" or argument.graph.owning_module is None:
        return None
    subgraph = getattr(argument.graph.owning_module, str(argument.target), None)
    return subgraph.graph if isinstance(subgraph, fx.GraphModule) else None


def mutated_placeholders(graph: fx.Graph) -> Iterator[tuple[str, fx.Node]]:
    """Yield the name of each placeholder that an operator mutates, directly or through views, and the operator."""
    for node in graph.nodes:
        for written, writer in writes_of(node):
            for base in view_bases(written):
                if base.op == "placeholder":
                    yield base.name, writer


def view_bases(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes that ``node`` may be a view of, and that are not views themselves."""
    waiting, seen = [node], {node}
    while waiting:
        node = waiting.pop()
        is_operator = isinstance(node.target, OpOverload) or node.target is operator.getitem
        bases = may_share_memory_with(node) if is_operator else []
        if not bases:
            yield node
        waiting += [base for base in reversed(bases) if base not in seen]
        seen.update(bases)


def eliminate_dead_nodes(graph: fx.Graph) -> None:
    """Erase the nodes of ``graph`` without users that write to no memory: ``graph`` need not be functional.

    ``fx.Graph.eliminate_dead_code`` alone erases writes of subgraphs and of running statistics.
    """
    graph.eliminate_dead_code(lambda node: node.is_impure() or next(writes_of(node), None) is not None)


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
    return set().union(*(groups[node] for node in written))


def may_share_memory_with(node: fx.Node) -> list[fx.Node]:
    """Return the arguments whose memory the result of ``node`` may share."""
    if node.target is operator.getitem and _is_new(node.args[0]):
        return []
    if node.target is operator.getitem or isinstance(node.target, HigherOrderOperator):
        return node.all_input_nodes
    if not isinstance(node.target, OpOverload):
        return []
    if node.target in UNDECLARED_VIEWS:
        return node.all_input_nodes
    if torch.Tag.maybe_aliasing_or_mutating in node.target.tags:
        return node.all_input_nodes[:1]
    return [value for value, alias in _arguments(node) if alias is not None]


def _is_new(results: Any) -> bool:
    """Return whether each of ``results`` of a node is newly allocated; schemas of composites may omit aliases."""
    if not isinstance(results, fx.Node) or not isinstance(results.target, OpOverload) or _is_cia_op(results.target):
        return False
    aliases = [result.alias_info for result in results.target._schema.returns]
    return not any(aliases) and torch.Tag.maybe_aliasing_or_mutating not in results.target.tags


def _arguments(node: fx.Node) -> Iterable[tuple[fx.Node, Any]]:
    """Yield the nodes among the arguments of ``node``, each with its alias annotation in the schema."""
    assert isinstance(node.target, OpOverload)
    for position, formal in enumerate(node.target._schema.arguments):
        value = node.args[position] if position < len(node.args) else node.kwargs.get(formal.name)
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, fx.Node):
                yield item, formal.alias_info
