"""Writes of selected elements at the mask, or at the indices, that selected them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.selections.reads import Result, aligned, is_one, known, masks_selected, true_places
from fx_importer.fx_passes.selections.selected import Selection, Selections, expression_of


@dataclass(frozen=True)
class _Write:
    """A write of ``values`` to ``x``, before the node that it replaces."""

    node: fx.Node
    x: fx.Node
    values: Any
    accumulate: bool

    @classmethod
    def of(cls, node: fx.Node) -> _Write:
        x, values = node.args[0], node.args[2]
        return cls(node, x, values, bool(node.args[3]) if len(node.args) > 3 else False)  # type: ignore[arg-type]

    @property
    def rank(self) -> int:
        return value_of(self.x).dim()

    def where(self, axis: int, rank: int, selection: Selection, target: fx.Node, values: Any) -> fx.Node:
        """Return ``target`` with ``values`` where its ``rank`` axes from ``axis``, one axis of these, are selected."""
        flat = emit(self.node, aten.flatten.using_ints, target, axis, axis + rank - 1) if rank > 1 else target
        valid = selection.valid(self.node, axis, value_of(flat).dim())
        new = emit(self.node, aten.add.Tensor, flat, values) if self.accumulate else values
        written = emit(self.node, aten.where.self, valid, new, flat)
        return emit(self.node, aten.reshape.default, written, sizes_of(self.node, target)) if rank > 1 else written


def sizes_of(before: fx.Node, x: fx.Node) -> list[Any]:
    """Return the sizes of ``x``."""
    shape = value_of(x).shape
    return [size if type(size) is int else emit(before, aten.sym_size.int, x, axis) for axis, size in enumerate(shape)]


def index_put(node: fx.Node, state: Selections) -> Result:
    """Write at one mask, or at indices, selected ones among them."""
    write, indices = _Write.of(node), list(node.args[1])  # type: ignore[arg-type]
    listed = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if write.x in state.selected:
        return _among_selected(write, listed, state)
    if not any(value_of(index).dtype is torch.bool for _, index in listed):
        return _put(write, indices, state)
    axis, mask = listed[0]
    if len(listed) > 1 or mask in state.selected:
        return None
    return _at_mask(write, axis, value_of(mask).dim(), state.numbers.of(mask), state)


def index_copy(node: fx.Node, state: Selections) -> Result:
    """Write slices at indices that are selected."""
    x, dim, index, source = node.args
    rank = value_of(x).dim()
    if not rank or value_of(source).dim() != rank or value_of(index).dim() != 1:
        return None
    write = _Write(node, x, source, False)  # type: ignore[arg-type]
    return _put(write, [*[None] * (dim % rank), index], state)


def index_fill(node: fx.Node, state: Selections) -> Result:
    """Write one value at indices that are selected."""
    x, dim, index, value = node.args
    rank = value_of(x).dim()
    if not rank or value_of(index).dim() != 1:
        return None
    if not isinstance(value, fx.Node):
        value = emit(node, aten.scalar_tensor.default, value, dtype=value_of(x).dtype)
    return _put(_Write(node, x, value, False), [*[None] * (dim % rank), index], state)  # type: ignore[arg-type]


def _put(write: _Write, indices: Sequence[Any], state: Selections) -> Result:
    """Write at ``indices`` without a mask."""
    listed = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if write.x in state.selected or not any(index in state.selected for _, index in listed):
        return None
    if len(listed) == 1 and (selection := _positions(write.x, *listed[0], state)) is not None:
        (axis, _), own = listed[0], value_of(write.values).dim() - write.rank + listed[0][0]
        if own >= 0 and write.values in state.selected:
            return _at_mask(write, axis, 1, selection.number, state)
        if write.values not in state.selected and (own < 0 or is_one(write.values, own)):
            return write.where(axis, 1, selection, write.x, write.values)
    return _at_indices(write, indices, state)


def _positions(x: Any, axis: int, index: fx.Node, state: Selections) -> Selection | None:
    """Return the selection whose positions, from ``nonzero``, are ``index``, if its mask has the size of ``axis``."""
    selected = state.selected[index]
    if not selected.is_position or value_of(index).dim() != 1:
        return None
    (selection,) = state.axes(index).values()
    same = expression_of(value_of(x).shape[axis]) == expression_of(value_of(selection.size))
    return selection if same else None


def _at_mask(write: _Write, axis: int, rank: int, number: int, state: Selections) -> Result:
    """Write selected values at a mask: a ``where``, if it is the mask that selected them."""
    values = write.values
    if values not in state.selected:
        return None
    own = value_of(values).dim() - (write.rank - axis - rank) - 1
    selected = state.axes(values)
    if selected.keys() != {own}:
        return None
    if selected[own].number != number:
        compacted = state.compacted(write.node, values, own)
        args = (*write.node.args[:2], compacted, *write.node.args[3:])
        return emit(write.node, write.node.target, *args) if write.node.target is aten.index_put.default else None  # type: ignore[arg-type]
    whole = state.whole(values)
    for _ in range(axis - own):
        whole = emit(write.node, aten.unsqueeze.default, whole, 0)
    return write.where(axis, rank, selected[own], write.x, whole)


def _among_selected(write: _Write, listed: Sequence[tuple[int, Any]], state: Selections) -> Result:
    """Write to selected elements where a mask of them is true."""
    x, values, axes = write.x, write.values, state.axes(write.x)
    if len(listed) != 1 or len(axes) != 1:
        return None
    axis, mask = listed[0]
    if not masks_selected(x, axis, mask, state) or value_of(mask).dtype is not torch.bool:
        return None
    chosen = state.of_mask(write.node, mask)
    own = value_of(values).dim() - (write.rank - axis)
    selected = state.axes(values)
    if {place: selection.number for place, selection in selected.items()} not in ({}, {own: chosen.number}):
        return None
    if own >= 0 and not selected and not is_one(values, own):
        if (number := known(value_of(values).shape[own])) is None:
            return None
        places = [*[None] * axis, true_places(write.node, chosen.mask, number)]
        written = emit(write.node, aten.index_put.default, state.whole(x), places, values, write.accumulate)
    else:
        written = write.where(axis, 1, chosen, state.whole(x), state.whole(values))
    return state.with_whole(write.node, written)


def _at_indices(write: _Write, indices: Sequence[Any], state: Selections) -> Result:
    """Write at selected indices: those that are not selected write to one more row, which is dropped."""
    node, x = write.node, write.x
    listed = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if not aligned(node, state, [index for _, index in listed]) or not _values_fit(write, listed, state):
        return None
    axis, index = next((axis, index) for axis, index in listed if index in state.selected)
    size = sizes_of(node, x)[axis]
    places = state.filled(node, index, 0)
    from_end = emit(node, aten.add.Tensor, places, size)
    places = emit(node, aten.where.self, emit(node, aten.lt.Scalar, places, 0), from_end, places)
    beyond = emit(node, aten.scalar_tensor.default, size, dtype=value_of(places).dtype)
    for valid in _all_valid(node, [index, *(other for _, other in listed)], state):
        places = emit(node, aten.where.self, valid, places, beyond)
    others = [index and state.filled(node, index, 0) for index in indices]
    others[axis] = places
    extended = emit(node, aten.cat.default, [x, emit(node, aten.slice.Tensor, x, axis, 0, 1)], axis)
    written = emit(node, aten.index_put.default, extended, others, state.whole(write.values), write.accumulate)
    return emit(node, aten.slice.Tensor, written, axis, 0, size)


def _all_valid(before: fx.Node, indices: Sequence[fx.Node], state: Selections) -> Iterator[fx.Node]:
    """Yield masks of the elements that are selected in all ``indices``, in shapes that broadcast with them."""
    known: set[tuple[int, int]] = set()
    for index in indices:
        rank = value_of(index).dim()
        for axis, selection in state.axes(index).items():
            if (axis - rank, selection.number) not in known:
                known.add((axis - rank, selection.number))
                yield selection.valid(before, axis, rank)


def _values_fit(write: _Write, listed: Sequence[tuple[int, Any]], state: Selections) -> bool:
    """Return whether the values have the selections of the indices, or size 1, along the axes of these."""
    axes = [axis for axis, _ in listed]
    rank = max(value_of(index).dim() for _, index in listed)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    shift = write.rank - len(axes) + rank - value_of(write.values).dim()
    picked: dict[int, int] = {}
    for _, index in listed:
        for axis, selection in state.axes(index).items():
            picked[first + axis + rank - value_of(index).dim() - shift] = selection.number
    selected = {axis: selection.number for axis, selection in state.axes(write.values).items()}
    if not selected.items() <= picked.items():
        return False
    return all(axis < 0 or axis in selected or is_one(write.values, axis) for axis in picked)


def masked_scatter(node: fx.Node, state: Selections) -> Result:
    """Write selected elements, in order, at a mask."""
    x, mask, source = node.args
    if x in state.selected or mask in state.selected or source not in state.selected:
        return None
    if value_of(source).dim() != 1:
        return None
    (selection,) = state.axes(source).values()
    same = selection.number == state.numbers.of(mask)  # type: ignore[arg-type]
    if not same or [*map(expression_of, value_of(mask).shape)] != [*map(expression_of, value_of(x).shape)]:
        return emit(node, aten.masked_scatter.default, x, mask, state.compacted(node, source, 0))
    flat = emit(node, aten.reshape.default, x, [-1])
    written = emit(node, aten.where.self, selection.mask, state.whole(source), flat)
    return emit(node, aten.reshape.default, written, sizes_of(node, x))  # type: ignore[arg-type]


def add_slices(node: fx.Node, state: Selections) -> Result:
    """Add nothing from slices that are not selected, at index 0 (``index_add``, ``scatter_add``)."""
    x, dim, index, source = node.args[:4]
    if x in state.selected:
        return None
    axes, own = state.axes(index), state.axes(source)  # type: ignore[arg-type]
    if node.target is aten.scatter_add.default and axes.keys() - {dim % max(value_of(x).dim(), 1)}:
        return None
    if node.target is aten.index_add.default and axes:
        axes = dict(zip([dim % max(value_of(x).dim(), 1)], axes.values(), strict=True))
    numbers = [{axis: selection.number for axis, selection in selected.items()} for selected in (axes, own)]
    if numbers[0] != numbers[1]:
        return None
    filled = state.filled(node, source, -0.0 if value_of(source).is_floating_point() else 0)
    return emit(node, node.target, x, dim, state.filled(node, index, 0), filled, **node.kwargs)  # type: ignore[arg-type]


def scatter(node: fx.Node, state: Selections) -> Result:
    """Write, or reduce, at indices along the selected axis: those that are not selected go to one more row."""
    x, dim, index, *rest = node.args
    axis = dim % max(value_of(x).dim(), 1)
    selected, source = state.axes(index), rest[0] if rest else None  # type: ignore[arg-type]
    numbers = [{axis: selection.number for axis, selection in axes.items()} for axes in (selected, state.axes(source))]  # type: ignore[arg-type]
    if x in state.selected or [*selected] != [axis]:
        return None
    if isinstance(source, fx.Node) and value_of(source).dim() and numbers[0] != numbers[1]:
        return None
    size = sizes_of(node, x)[axis]  # type: ignore[arg-type]
    beyond = emit(node, aten.scalar_tensor.default, size, dtype=value_of(index).dtype)
    valid = selected[axis].valid(node, axis, value_of(index).dim())
    places = emit(node, aten.where.self, valid, state.whole(index), beyond)
    extended = emit(node, aten.cat.default, [x, emit(node, aten.slice.Tensor, x, axis, 0, 1)], axis)
    written = emit(node, node.target, extended, dim, places, *state.whole(rest), **node.kwargs)  # type: ignore[arg-type]
    return emit(node, aten.slice.Tensor, written, axis, 0, size)
