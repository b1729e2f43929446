"""Masks next to other indices, as the positions of their true elements.

torch traces ``x[mask, labels[mask]]`` with a data-dependent size of the mask alone, which no result has, and cannot
trace it again: "Pending unbacked symbols not in returned outputs". With the positions as a result of their own,
``x[positions, labels[positions]]``, all sizes are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import SymInt, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import CallMethodKey, free_unbacked_symbols
from torch.utils._pytree import SequenceKey

from fx_importer.fx_graph.aliasing import aliases_of_mutated, graphs_of
from fx_importer.fx_graph.emission import emit, fake_mode_of_values, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxPass

_INDEXED = frozenset((aten.index.Tensor, aten.index_put.default, aten.index_put_.default))

_ROWS = (aten.nonzero.default, aten.argwhere.default)
_COLUMNS = (aten.where.default, aten.nonzero_numpy.default)
"""Operators that list the positions of true elements: one tensor, or one for each axis."""


def masks_to_positions(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with the masks that it uses together with other indices as positions."""
    if not any(_shared_masks(graph) for graph in graphs_of(program.graph_module)):
        return program
    return with_rewritten_graphs(program, lambda graph, _: rewrite(graph))


def rewrite(graph: fx.Graph) -> None:
    """Replace masks in the indices of reads, and of writes with several indices."""
    for mask, number in _shared_masks(graph).items():
        positions: list[fx.Node] = []
        for node in [user for user in mask.users if user.target in _INDEXED and mask in _indices(user)]:
            if node.target is not aten.index.Tensor and not _has_several(node):
                continue  # a write at one mask is a selection of all elements
            if not _has_sizes(node, number):
                continue
            positions = positions or _positions(mask, number, graph)
            indices = [part for index in _indices(node) for part in (positions if index is mask else [index])]
            node.args = (node.args[0], indices, *node.args[2:])
            node.meta.pop("unbacked_bindings", None)


def _indices(node: fx.Node) -> list[Any]:
    return list(node.args[1])  # type: ignore[arg-type]


def _has_several(node: fx.Node) -> bool:
    return sum(index is not None for index in _indices(node)) > 1


def _shared_masks(graph: fx.Graph) -> dict[fx.Node, SymInt]:
    """Return the masks that an operator uses with other indices, and the number of their true elements.

    A mask that is written to differs from read to read, and stays.
    """
    masks: dict[fx.Node, SymInt] = {}
    for node in graph.nodes:
        if node.target in _INDEXED and _has_several(node):
            for mask in _indices(node):
                if isinstance(mask, fx.Node) and value_of(mask).dtype is torch.bool and value_of(mask).dim():
                    number = next(_numbers(mask), None)
                    if number is not None:
                        masks[mask] = number
    return {mask: number for mask, number in masks.items() if mask not in aliases_of_mutated(graph)} if masks else {}


def _numbers(mask: fx.Node) -> Iterator[SymInt]:
    """Yield the data-dependent sizes of reads at ``mask``."""
    for node in mask.users:
        if node.target is aten.index.Tensor and mask in _indices(node):
            yield from (size for size in value_of(node).shape if _is_new(size, node))


def _is_new(size: Any, node: fx.Node) -> bool:
    """Return whether ``size`` of the result of ``node`` is a data-dependent one that its operand lacks."""
    if not isinstance(size, SymInt) or not size.node.expr.is_Symbol or not free_unbacked_symbols(size):
        return False
    return all(size.node.expr not in free_unbacked_symbols(other) for other in value_of(node.args[0]).shape)


def _is_same(size: Any, number: SymInt) -> bool:
    return isinstance(size, SymInt) and size.node.expr == number.node.expr


def _has_sizes(node: fx.Node, number: SymInt) -> bool:
    """Return whether the data-dependent sizes that ``node`` makes are ``number``."""
    if node.target is not aten.index.Tensor:
        return True
    return all(size.node.expr == number.node.expr for size in value_of(node).shape if _is_new(size, node))


def _positions(mask: fx.Node, number: SymInt, graph: fx.Graph) -> list[fx.Node]:
    """Emit the positions of the true elements of ``mask``, int64 [number], one tensor for each axis.

    They replace what the graph lists itself with the same number, which has one definition only.
    """
    before = mask.next
    while before.op == "placeholder":
        before = before.next
    with mask.graph.inserting_before(before):
        listed = mask.graph.call_function(aten.nonzero.default, (mask,))
    listed.meta |= {key: mask.meta[key] for key in ("stack_trace", "nn_module_stack") if key in mask.meta}
    with fake_mode_of_values(mask, ()):
        listed.meta["val"] = torch.empty((number, value_of(mask).dim()), dtype=torch.int64)
    listed.meta["unbacked_bindings"] = {number.node.expr: (CallMethodKey("size"), SequenceKey(0))}
    positions = [emit(before, aten.select.int, listed, 1, axis) for axis in range(value_of(mask).dim())]
    for user in [user for user in mask.users if user is not listed]:
        if user.target in _ROWS and _is_same(value_of(user).shape[0], number):
            user.replace_all_uses_with(emit(user, aten.clone.default, listed))  # the program may write to its result
            graph.erase_node(user)
        elif user.target in _COLUMNS and _is_same(value_of(user)[0].shape[0], number):
            for part in list(user.users):
                axis: Any = part.args[1]
                part.replace_all_uses_with(emit(part, aten.clone.default, positions[axis]))
                graph.erase_node(part)
            graph.erase_node(user)
    return positions


MASKS_TO_POSITIONS = FxPass(
    "masks-to-positions",
    lambda program, _: masks_to_positions(program),
    lambda context: context.target.library_operators,
)
"""Masks next to other indices as positions, before torch traces the program again; raw output keeps the masks."""
