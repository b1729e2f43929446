"""Masks next to other indices, as the positions of their true elements.

torch traces ``x[mask, labels[mask]]`` with a data-dependent size of the mask alone, which no result has, and cannot
trace it again: "Pending unbacked symbols not in returned outputs". With the positions as a result of their own,
``x[positions, labels[positions]]``, all sizes are theirs.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import CallMethodKey, free_unbacked_symbols
from torch.utils._pytree import SequenceKey

from fx_importer.fx_graph.aliasing import alias_sets, aliases_of_mutated, graphs_of, mutated_arguments
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
    for shared in _shared_masks(graph):
        mask, number = shared.mask, shared.number
        positions: list[fx.Node] = []
        for node in [user for user in shared.users if user.target in _INDEXED and mask in _indices(user)]:
            if node.target is not aten.index.Tensor and not _has_several(node):
                continue  # a write at one mask is a selection of all elements
            if not _has_sizes(node, number):
                continue
            positions = positions or _positions(shared)
            indices = [part for index in _indices(node) for part in (positions if index is mask else [index])]
            node.args = (node.args[0], indices, *node.args[2:])
            node.meta.pop("unbacked_bindings", None)


@dataclass(frozen=True)
class _SharedMask:
    """A mask that operators use with other indices, between two writes to it."""

    mask: fx.Node
    number: SymInt
    """The number of its true elements there."""
    users: list[fx.Node]
    """The nodes that read it there, in order."""
    written: bool
    """Whether the graph writes to it at all."""


def _indices(node: fx.Node) -> list[Any]:
    return list(node.args[1])  # type: ignore[arg-type]


def _has_several(node: fx.Node) -> bool:
    return sum(index is not None for index in _indices(node)) > 1


def _shared_masks(graph: fx.Graph) -> list[_SharedMask]:
    """Return the masks that an operator uses with other indices."""
    masks = dict.fromkeys(
        mask
        for node in graph.nodes
        if node.target in _INDEXED and _has_several(node)
        for mask in _indices(node)
        if isinstance(mask, fx.Node) and value_of(mask).dtype is torch.bool and value_of(mask).dim()
    )
    if not masks:
        return []
    written, order = aliases_of_mutated(graph), {node: at for at, node in enumerate(graph.nodes)}
    groups = alias_sets(graph) if written.intersection(masks) else {}
    shared: list[_SharedMask] = []
    for mask in masks:
        aliases = groups[mask] if mask in written else ()
        writes = [at for node, at in order.items() if any(argument in aliases for argument in mutated_arguments(node))]
        between: dict[int, list[fx.Node]] = {}
        for user in sorted(mask.users, key=order.__getitem__):
            between.setdefault(bisect.bisect_left(writes, order[user]), []).append(user)
        for users in between.values():
            several = any(user.target in _INDEXED and _has_several(user) for user in users)
            number = next(_numbers(mask, users), None) if several else None
            if number is not None:
                shared.append(_SharedMask(mask, number, users, mask in written))
    return shared


def _numbers(mask: fx.Node, users: Sequence[fx.Node]) -> Iterator[SymInt]:
    """Yield the data-dependent sizes of reads at ``mask`` among ``users``."""
    for node in users:
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


def _positions(shared: _SharedMask) -> list[fx.Node]:
    """Emit the positions of the true elements of a mask, int64 [number], one tensor for each axis.

    They replace what the graph lists itself with the same number, which has one definition only.
    """
    mask, number, graph = shared.mask, shared.number, shared.mask.graph
    before = shared.users[0] if shared.written else mask.next
    while before.op == "placeholder":
        before = before.next
    with graph.inserting_before(before):
        listed = graph.call_function(aten.nonzero.default, (mask,))
    listed.meta |= {key: mask.meta[key] for key in ("stack_trace", "nn_module_stack") if key in mask.meta}
    with fake_mode_of_values(mask, ()):
        listed.meta["val"] = torch.empty((number, value_of(mask).dim()), dtype=torch.int64)
    listed.meta["unbacked_bindings"] = {number.node.expr: (CallMethodKey("size"), SequenceKey(0))}
    positions = [emit(before, aten.select.int, listed, 1, axis) for axis in range(value_of(mask).dim())]
    for user in shared.users:
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
