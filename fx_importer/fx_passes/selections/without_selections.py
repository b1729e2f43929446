"""Programs that read and write elements selected by masks, for output types whose sizes do not depend on values.

``z[..., mask] += 1`` reads as many elements as the mask has true ones. Computed for all elements, and written where the
mask is true, it needs no size that is known at run time only. So do reductions of selected elements, to which the
others are neutral, and products of matrices with selected rows. An output whose own size depends on values is padded.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from fx_importer.frontend.assumptions.decided_sizes import LISTS, list_assumed_number
from fx_importer.fx_graph.aliasing import graphs_of
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_graph, with_rewritten_modules
from fx_importer.fx_graph.result_sizes import ResultSize, with_result_sizes
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.node_rewriting import is_in_place
from fx_importer.fx_passes.selections.elementwise import is_pointwise, pointwise
from fx_importer.fx_passes.selections.rules import MOVES, RULES, SOURCES
from fx_importer.fx_passes.selections.selected import Selected, Selection, Selections, expression_of, nodes_in


def without_selections(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Return ``program`` with selected elements as all elements and masks, where their results can be expressed."""
    calls = (node.target for graph in graphs_of(program.graph_module) for node in graph.nodes)
    if operators := {target for target in calls if isinstance(target, OpOverload) and target.name() in _COMPOSITES}:
        program = context.decompose_calls(program, operators)
    nodes = [node for graph in graphs_of(program.graph_module) for node in graph.nodes]
    if not any(_selects(node) or _lists_as_many(node) for node in nodes):
        return program
    program = context.functionalize(program)
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    sizes: list[tuple[ResultSize, str]] = []

    def rewrite_module(graph: fx.Graph, module: fx.GraphModule) -> None:
        state = rewrite(graph)
        if state is not None and module is program.graph_module:
            sizes.extend(_pad_results(graph, kinds, state))
        graph.eliminate_dead_code()

    root = with_rewritten_modules(program.graph_module, rewrite_module)
    padded = with_result_sizes(program, sizes) if sizes else program
    return with_graph(padded, root.graph, padded.graph_signature, root=root)


_COMPOSITES = frozenset(
    (
        *("aten::_unique", "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim_consecutive"),
        "torchvision::nms",
    )
)
"""Operators that select elements by a mask which they compute."""


_ARITHMETIC = (operator.add, operator.sub, operator.mul)


def _selects(node: fx.Node) -> bool:
    """Return whether ``node`` reads at a mask, or finds the true elements of one."""
    if node.target not in SOURCES:
        return False
    if node.target is aten.index.Tensor and any(
        value_of(index).dtype is torch.bool for index in nodes_in(node.args[1])
    ):
        return True
    return _is_data_dependent(node)


def _lists_as_many(node: fx.Node) -> bool:
    """Return whether ``node`` lists as many elements as the program works for, which an assumption checks."""
    return node.target in LISTS and bool(node.users) and not _is_data_dependent(node)


def _is_data_dependent(node: fx.Node) -> bool:
    tensors = [leaf for leaf in tree_leaves(value_of(node)) if isinstance(leaf, Tensor)]
    return any(isinstance(size, SymInt) and free_unbacked_symbols(size) for leaf in tensors for size in leaf.shape)


def rewrite(graph: fx.Graph) -> Selections | None:
    """Rewrite ``graph``, which writes to no memory. Return the selected values that are left."""
    if any(is_in_place(node) for node in graph.nodes):
        return None
    state = Selections()
    for node in list(graph.nodes):
        state.numbers.of(node)
        if node.op != "call_function":
            continue
        if node.target is aten.sym_size.int or (node.target in _ARITHMETIC and isinstance(value_of(node), SymInt)):
            _size(node, state)
            continue
        if _lists_as_many(node):
            list_assumed_number(node)
            continue
        inputs = node.all_input_nodes
        touched = any(input_ in state.selected or input_ in state.sizes for input_ in inputs)
        rule = RULES.get(node.target) if touched else None
        if rule is None and _selects(node):
            rule = SOURCES[node.target]
        if rule is None and touched and is_pointwise(node.target):
            rule = pointwise
        result = None if rule is None else rule(node, state)
        if result is None and rule is not None and [x for x in state.among(inputs) if state.compact(node, x)]:
            result = rule(node, state)  # of selected elements that come first
        if isinstance(result, Selected) and _is_data_dependent(node):
            moved = node.target in MOVES and any(
                state.selected[operand].is_position for operand in state.among(node.args[0])
            )
            state.selected[node] = replace(result, is_position=True) if moved else result
        elif result is not None:
            node.replace_all_uses_with(result.whole if isinstance(result, Selected) else result)
    _read_sizes(state)
    return state


def _pad_results(graph: fx.Graph, kinds: Sequence[OutputKind], state: Selections) -> Iterator[tuple[ResultSize, str]]:
    """Return all elements of selected outputs, the selected ones first, and then the numbers of these.

    Yields:
        Each number's record, and the name of its node.
    """
    ending = graph.output_node()
    results: list[Any] = list(ending.args[0])  # type: ignore[arg-type]
    outputs = [position for position, kind in enumerate(kinds) if kind is OutputKind.USER_OUTPUT]
    selections: dict[str, Selection] = {}
    axes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for leaf, position in enumerate(outputs):
        result = results[position]
        if not isinstance(result, fx.Node) or result not in state.selected:
            continue
        for axis, selection in state.axes(result).items():
            size = str(value_of(result).shape[axis])
            selections.setdefault(size, selection)
            axes[size].append((leaf, axis))
        state.compact(ending, result)
        results[position] = state.whole(result)
    counts = [selection.count(ending) for selection in selections.values()]
    ending.args = ([*results, *counts],)
    for at, (size, count) in enumerate(zip(selections, counts, strict=True)):
        yield ResultSize(size if size.isidentifier() else f"size{at}", tuple(axes[size])), count.name


def _size(node: fx.Node, state: Selections) -> None:
    """Record a size of selected elements, also one that Python computes, as of a concatenation."""
    if node.target is aten.sym_size.int:
        source, axis = node.args
        selection = state.axes(source).get(axis)  # type: ignore[arg-type, call-overload]
    else:
        selection = state.of_size(expression_of(value_of(node)))
    if selection is not None:
        state.sizes[node] = selection


def _read_sizes(state: Selections) -> None:
    """Replace sizes of selected elements, where they are numbers, by items of the sums of masks."""
    for node, selection in state.sizes.items():
        if node.users:
            count = selection.count(node)
            with node.graph.inserting_before(node):
                item = node.graph.call_function(aten._local_scalar_dense.default, (count,))
            item.meta.update(node.meta)
            node.replace_all_uses_with(item)


WITHOUT_SELECTIONS = FxPass(
    "selections-to-masks", without_selections, lambda context: not context.target.data_dependent_sizes
)
