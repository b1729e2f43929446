"""Programs that read and write elements selected by masks, for output types whose sizes do not depend on values.

``z[..., mask] += 1`` reads as many elements as the mask has true ones. Computed for all elements, and written where the
mask is true, it needs no size that is known at run time only. So do reductions of selected elements, to which the
others are neutral, and products of matrices with selected rows. A result whose own size depends on values stays.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from fx_importer.fx_graph.aliasing import graphs_of
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.node_rewriting import is_in_place
from fx_importer.fx_passes.selections.elementwise import is_pointwise, pointwise
from fx_importer.fx_passes.selections.rules import MOVES, RULES, SOURCES
from fx_importer.fx_passes.selections.selected import Selected, Selections, nodes_in


def without_selections(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Return ``program`` with selected elements as all elements and masks, where their results can be expressed."""
    if not any(_selects(node) for graph in graphs_of(program.graph_module) for node in graph.nodes):
        return program
    return with_rewritten_graphs(context.functionalize(program), lambda graph, _: rewrite(graph))


def _selects(node: fx.Node) -> bool:
    """Return whether ``node`` reads at a mask, or finds the true elements of one."""
    if node.target not in SOURCES:
        return False
    if node.target is aten.index.Tensor and any(
        value_of(index).dtype is torch.bool for index in nodes_in(node.args[1])
    ):
        return True
    return _is_data_dependent(node)


def _is_data_dependent(node: fx.Node) -> bool:
    tensors = [leaf for leaf in tree_leaves(value_of(node)) if isinstance(leaf, Tensor)]
    return any(isinstance(size, SymInt) and free_unbacked_symbols(size) for leaf in tensors for size in leaf.shape)


def rewrite(graph: fx.Graph) -> None:
    """Rewrite ``graph``, which writes to no memory."""
    if any(is_in_place(node) for node in graph.nodes):
        return
    state = Selections()
    for node in list(graph.nodes):
        state.numbers.of(node)
        if node.op != "call_function":
            continue
        if node.target is aten.sym_size.int:
            _size(node, state)
            continue
        inputs = node.all_input_nodes
        touched = any(each in state.selected or each in state.sizes for each in inputs)
        rule = RULES.get(node.target) if touched else None
        if rule is None and _selects(node):
            rule = SOURCES[node.target]
        if rule is None and touched and is_pointwise(node.target):
            rule = pointwise
        result = None if rule is None else rule(node, state)
        if isinstance(result, Selected) and _is_data_dependent(node):
            moved = node.target in MOVES and any(state.selected[each].is_position for each in state.among(node.args[0]))
            state.selected[node] = replace(result, is_position=True) if moved else result
        elif result is not None:
            node.replace_all_uses_with(result.whole if isinstance(result, Selected) else result)
    _read_sizes(state)
    graph.eliminate_dead_code()


def _size(node: fx.Node, state: Selections) -> None:
    """Record a size of selected elements."""
    source, axis = node.args
    selection = state.axes(source).get(axis)  # type: ignore[arg-type, call-overload]
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
