"""Reads at all positions of axes, as masks of transformers have them: ``mask[batch, key]`` with indices ``arange``."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.constant_values import Constants, foldable_state, rules_of
from fx_importer.fx_passes.fx_pass import FxContext, FxPass

_MAX_ELEMENTS = 1 << 16
"""Most elements of indices that are computed to compare them with positions."""


def _axes_of(x: torch.Tensor, indices: list[torch.Tensor]) -> list[int] | None:
    """Return the axis of the broadcast indices along which each one counts the positions of its axis of ``x``.

    None if one has other values, or two count along one axis.
    """
    rank = max(index.dim() for index in indices)
    axes: list[int] = []
    for size, index in zip(x.shape, indices, strict=False):
        whole = index.reshape((1,) * (rank - index.dim()) + tuple(index.shape))
        moving = [axis for axis in range(rank) if whole.shape[axis] != 1]
        if len(moving) != 1 or whole.numel() != size or moving[0] in axes:
            return None
        if not torch.equal(whole.flatten(), torch.arange(size, dtype=whole.dtype)):
            return None
        axes.append(moving[0])
    return axes


def _read_in_place(node: fx.Node, constants: Constants) -> fx.Node | None:
    """Return ``x`` with its axes where the positions are, and of size 1 along the others."""
    x, indices = node.args[:2]
    if not isinstance(x, fx.Node) or not isinstance(indices, list | tuple):
        return None
    sizes = value_of(x).shape
    nodes: list[fx.Node] = [index for index in indices if isinstance(index, fx.Node) and index in constants.nodes]
    if len(nodes) != len(indices) or not all(isinstance(size, int) and size > 1 for size in sizes[: len(nodes)]):
        return None
    if any(value_of(index).numel() > _MAX_ELEMENTS or value_of(index).dtype == torch.bool for index in nodes):
        return None
    values = [constants.value(index) for index in nodes]
    numbers = [value for value in values if value is not None]
    axes = _axes_of(value_of(x), numbers) if len(numbers) == len(values) else None
    if axes is None:
        return None
    order = sorted(range(len(axes)), key=axes.__getitem__)
    end = x
    if order != sorted(order):
        end = emit(node, aten.permute.default, end, order + list(range(len(axes), len(sizes))))
    for axis in range(value_of(node).dim() - (len(sizes) - len(axes))):
        if axis not in axes:
            end = emit(node, aten.unsqueeze.default, end, axis)
    if end is x:
        return x
    end.meta |= {key: value for key, value in node.meta.items() if key not in end.meta}
    return end


def read_positions_in_place(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Return ``program`` with reads whose indices are all positions of axes as views of the tensor that they read."""
    if not any(node.target is aten.index.Tensor for node in program.graph.nodes):
        return program
    program = with_rewritten_graphs(program, lambda graph, owner: None, in_place=context.owns(program))
    constants = Constants(program, foldable_state(program, context), rules_of(context))
    for node in list(program.graph.nodes):
        if node.target is aten.index.Tensor and (result := _read_in_place(node, constants)) is not None:
            node.replace_all_uses_with(result)
            node.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    return program


READ_POSITIONS_IN_PLACE = FxPass(
    "read-positions-in-place", read_positions_in_place, lambda context: context.target.folds_constants
)
