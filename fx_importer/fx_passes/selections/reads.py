"""Reads by masks, and by indices that masks have: the selected elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.selections.selected import Selected, Selection, Selections, axes_with, expression_of

Result = Selected | fx.Node | None
"""Selected elements, or a node in place of a result without selected axes; None if it cannot be expressed."""


def unbacked(value: Any, axis: int) -> Any:
    """Return the symbol of the size of ``axis``, if it is a data-dependent number of elements.

    Such a size that the model asserts to be another dynamic one has its symbol, and no mask.
    """
    size = value.shape[axis]
    if not isinstance(size, SymInt) or not free_unbacked_symbols(size):
        return None
    return size.node.expr if size.node.expr.is_Symbol else None


def known(size: int | SymInt) -> int | None:
    """Return a size that the model asserts, as of a mask whose values are added to a tensor of three rows."""
    expression = expression_of(size)
    return int(expression) if expression.is_Integer else None


def index(node: fx.Node, state: Selections) -> Result:
    """Read at one mask, or at indices, selected ones among them."""
    x, indices = node.args[:2]
    listed = [(at, entry) for at, entry in enumerate(indices) if entry is not None]  # type: ignore[arg-type]
    masks = [entry for _, entry in listed if value_of(entry).dtype == torch.bool]
    if not masks:
        return _at_indices(node, state)
    if len(listed) > 1:
        return _at_mask_and_indices(node, state)
    axis, mask = listed[0]
    if (number := known(value_of(node).shape[axis])) is not None:
        return _of_known_number(node, x, axis, mask, number, state)
    if mask in state.selected:
        return _among_selected(node, x, axis, mask, state)
    return _by_mask(node, x, axis, mask, state)


def _by_mask(node: fx.Node, x: Any, axis_: int, mask: fx.Node, state: Selections) -> Result:
    """Read whole slices at a mask of the axes of ``x`` from ``axis_`` on."""
    rank = value_of(mask).dim()
    symbol = unbacked(value_of(node), axis_) if rank else None
    if symbol is None or any(axis_ <= axis < axis_ + rank for axis in state.axes(x)):
        return None
    whole = state.whole(x)
    if rank > 1:
        whole = emit(node, aten.flatten.using_ints, whole, axis_, axis_ + rank - 1)
    outer = state.selected[x].selections if x in state.selected else {}
    selection = state.of_mask(node, mask)
    same = outer.get(symbol, selection).number == selection.number
    return Selected(whole, {**outer, symbol: selection}) if same else None


def _at_mask_and_indices(node: fx.Node, state: Selections) -> Result:
    """Read at a mask of one axis, and at indices of elements that the same mask selects."""
    x, indices = node.args[:2]
    listed = [index for index in indices if index is not None]  # type: ignore[union-attr]
    masks = [index for index in listed if value_of(index).dtype is torch.bool]
    others = [index for index in listed if index not in masks]
    selections = [selection for index in others for selection in state.axes(index).values()]
    if len(masks) != 1 or not selections or value_of(masks[0]).dim() != 1 or masks[0] in state.selected:
        return None
    number = state.numbers.of(masks[0])
    if x in state.selected or any(selection.number != number for selection in selections):
        return None
    if not all(value_of(index).dim() == 1 and state.axes(index) for index in others):
        return None
    position = emit(node, aten.arange.default, selections[0].size, dtype=torch.int64)
    return state.recomputed(
        node,
        x,
        [position if index is masks[0] else index and state.filled(node, index, 0) for index in indices],  # type: ignore[union-attr]
    )


def _of_known_number(node: fx.Node, x: Any, axis: int, mask: fx.Node, number: int, state: Selections) -> Result:
    """Read at a mask that has ``number`` true elements: the model asserts it."""
    rank = value_of(mask).dim()
    if not rank:
        return None
    if x in state.selected or mask in state.selected:
        if not masks_selected(x, axis, mask, state) or len(state.axes(x)) != 1:
            return None
        mask = state.of_mask(node, mask).mask
    whole = state.whole(x)
    if rank > 1:
        whole = emit(node, aten.flatten.using_ints, whole, axis, axis + rank - 1)
        mask = emit(node, aten.flatten.using_ints, mask)
    return emit(node, aten.index_select.default, whole, axis, true_places(node, mask, number))


def masks_selected(x: fx.Node, axis: int, mask: fx.Node, state: Selections) -> bool:
    """Return whether ``mask`` is one of the elements of ``x`` that are selected along ``axis``."""
    outer, inner = state.axes(x), state.axes(mask)
    return value_of(mask).dim() == 1 and axis in outer and 0 in inner and outer[axis].number == inner[0].number


def true_places(node: fx.Node, mask: fx.Node, number: int) -> fx.Node:
    """Return the positions of the ``number`` true elements of ``mask``, int64 [number]."""
    listed = emit(node, aten.nonzero_static.default, mask, size=number, fill_value=0)
    return emit(node, aten.select.int, listed, 1, 0)


def _among_selected(node: fx.Node, x: Any, place: int, mask: fx.Node, state: Selections) -> Result:
    """Read at a mask of elements that are selected: fewer of them."""
    symbol = unbacked(value_of(node), place)
    if symbol is None or not masks_selected(x, place, mask, state):
        return None
    others = axes_with(value_of(node), state.selected[x].selections)
    if others is None:
        return None
    kept = {unbacked(value_of(node), axis): selection for axis, selection in others.items()}
    return None if symbol in kept else Selected(state.whole(x), {**kept, symbol: state.of_mask(node, mask)})


def _at_indices(node: fx.Node, state: Selections) -> Result:
    """Read at indices: 0 where they are not selected."""
    x: Any = node.args[0]
    indices: Sequence[Any] = node.args[1]  # type: ignore[assignment]
    if any(axis >= len(indices) or indices[axis] is not None for axis in state.axes(x)):
        return None
    if x in state.selected and sum(entry is not None for entry in indices) > 1:
        return None

    if not aligned(node, state, [entry for entry in indices if entry]):
        return None
    return state.recomputed(node, state.whole(x), [entry and state.filled(node, entry, 0) for entry in indices])


def aligned(node: fx.Node, state: Selections, operands: Sequence[Any]) -> bool:
    """Return whether ``operands``, which broadcast, have the same selections along each selected axis, or size 1."""
    tensors = [value for value in operands if isinstance(value, fx.Node) and isinstance(value_of(value), Tensor)]
    rank = max((value_of(tensor).dim() for tensor in tensors), default=0)
    common: dict[int, Selection] = {}
    for tensor in tensors:
        for axis, selection in state.axes(tensor).items():
            last = axis + rank - value_of(tensor).dim()
            if common.setdefault(last, selection).number != selection.number:
                return False
    for tensor in tensors:
        shift, selected = rank - value_of(tensor).dim(), state.axes(tensor)
        for axis in common:
            own = axis - shift
            if own >= 0 and own not in selected and not is_one(tensor, own):
                return False
    return True


def is_one(x: fx.Node, axis: int) -> bool:
    """Return whether the size of ``axis`` is 1."""
    return expression_of(value_of(x).shape[axis]) == 1


def masked_select(node: fx.Node, state: Selections) -> Result:
    """Read the elements at a mask that broadcasts with the tensor."""
    x, mask = node.args
    symbol = unbacked(value_of(node), 0)
    if symbol is None or x in state.selected or mask in state.selected:
        return None
    shape = torch.broadcast_shapes(value_of(x).shape, value_of(mask).shape)
    sizes = [expression_of(size) for size in shape]
    if any([*map(expression_of, value_of(operand).shape)] != sizes for operand in (x, mask)):
        if not all(size.is_Integer for size in sizes):
            return None
        x, mask = (emit(node, aten.expand.default, operand, [int(size) for size in sizes]) for operand in (x, mask))
    flat = emit(node, aten.reshape.default, x, [-1])
    return Selected(flat, {symbol: state.of_mask(node, mask)})  # type: ignore[arg-type]


def _coordinates(node: fx.Node, mask: fx.Node, selection: Selection) -> list[fx.Node]:
    """Return the index of all elements along each axis of ``mask``, int64 [n]."""
    shape = value_of(mask).shape
    position = emit(node, aten.arange.default, selection.size, dtype=torch.int64)
    coordinates: list[fx.Node] = []
    for axis in reversed(range(len(shape))):
        size = shape[axis] if type(shape[axis]) is int else emit(node, aten.sym_size.int, mask, axis)
        last = not axis
        coordinates.append(position if last else emit(node, aten.remainder.Scalar, position, size))
        if not last:
            position = emit(node, aten.floor_divide.default, position, size)
    return coordinates[::-1]


def nonzero(node: fx.Node, state: Selections) -> Result:
    """Return the indices of the true elements, [n, rank], or a tuple of them by axis."""
    x: Any = node.args[0]
    as_tuple = node.target is aten.where.default
    value = value_of(node)[0] if as_tuple else value_of(node)
    symbol = unbacked(value, 0) if value_of(x).dim() else None
    if symbol is None or x in state.selected:
        return None
    mask = x if value_of(x).dtype == torch.bool else emit(node, aten.ne.Scalar, x, 0)
    state.numbers.of(x)
    selection = state.of_mask(node, mask)
    coordinates = _coordinates(node, mask, selection)
    stacked = emit(node, aten.stack.default, coordinates, 0 if as_tuple else 1)
    whole = emit(node, aten.unbind.int, stacked, 0) if as_tuple else stacked
    return Selected(whole, {symbol: selection}, value_of(x).dim() == 1)


def gather(node: fx.Node, state: Selections) -> Result:
    """Read elements along an axis that is not selected, at indices that may be."""
    x, dim, places = node.args[:3]
    axis = dim % max(value_of(x).dim(), 1)
    if axis in state.axes(x) or axis in state.axes(places):  # type: ignore[arg-type]
        return None
    numbers = [{axis: selection.number for axis, selection in state.axes(operand).items()} for operand in (x, places)]  # type: ignore[arg-type]
    if numbers[0] != numbers[1]:
        return None
    filled = state.filled(node, places, 0)
    return state.recomputed(node, state.whole(x), dim, filled)


def index_select(node: fx.Node, state: Selections) -> Result:
    """Read slices along an axis that is not selected, at indices that may be."""
    x, dim, places = node.args
    if dim % max(value_of(x).dim(), 1) in state.axes(x):  # type: ignore[operator, arg-type]
        return None
    filled = state.filled(node, places, 0)
    return state.recomputed(node, state.whole(x), dim, filled)


def embedding(node: fx.Node, state: Selections) -> Result:
    """Look up rows at selected indices."""
    weight, places, *rest = node.args
    if weight in state.selected:
        return None
    filled = state.filled(node, places, 0)
    return state.recomputed(node, weight, filled, *rest)
