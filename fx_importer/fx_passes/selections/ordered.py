"""Operators that move elements along a selected axis: of selected elements that come first, but for ``cat``."""

from __future__ import annotations

import math
import operator
import sys
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.node_rewriting import arguments_of
from fx_importer.fx_passes.selections.elementwise import along
from fx_importer.fx_passes.selections.reads import Result, aligned
from fx_importer.fx_passes.selections.selected import (
    Selected,
    Selection,
    Selections,
    axes_with,
    expression_of,
    first_elements,
)

_along = along(1)


def _first(node: fx.Node, axis: int, state: Selections) -> Selection | None:
    """Return the selection of an axis of ``node`` whose selected elements come first."""
    selection = state.axes(node).get(axis)
    return selection if selection is not None and selection.is_prefix else None


def flip(node: fx.Node, state: Selections) -> Result:
    """Reverse axes, selected ones among them."""
    x, dims = node.args
    selected, whole, rank = state.axes(x), state.whole(x), value_of(x).dim()  # type: ignore[arg-type]
    dims = [dim % max(rank, 1) for dim in dims]  # type: ignore[union-attr]
    for axis in selected.keys() & dims:
        if not selected[axis].is_prefix:
            return None
        position = emit(node, aten.arange.default, selected[axis].size, dtype=torch.int64)
        last = emit(node, aten.sub.Tensor, selected[axis].count(node), 1)
        places = emit(node, aten.clamp_min.default, emit(node, aten.sub.Tensor, last, position), 0)
        whole = emit(node, aten.index_select.default, whole, axis, places)
    others = [dim for dim in dims if dim not in selected]
    return state.with_whole(node, emit(node, aten.flip.default, whole, others) if others else whole)


def sort(node: fx.Node, state: Selections) -> Result:
    """Sort along an axis: what is not selected stays last, by a value and, among equal ones, by the order."""
    stable = node.target in (aten.sort.stable, aten.argsort.stable)
    names = ("self", "stable", "dim", "descending") if stable else ("self", "dim", "descending")
    arguments: dict[str, Any] = {"dim": -1, "descending": False}
    arguments |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    x, descending = arguments["self"], arguments["descending"]
    value = value_of(x)
    axis = arguments["dim"] % max(value.dim(), 1)
    if axis not in state.axes(x):
        return state.recomputed(node)
    if _first(x, axis, state) is None or value.is_complex():
        return None
    filled = state.filled(node, x, _last(value.dtype, descending), [axis])
    ordered = emit(node, aten.sort.stable, filled, stable=True, dim=axis, descending=descending)
    if node.target in (aten.argsort.default, aten.argsort.stable):
        ordered = emit(node, operator.getitem, ordered, 1)
    return state.with_whole(node, ordered)


def _last(dtype: torch.dtype, descending: bool) -> float:
    """Return a value that no other one follows in the order of ``dtype``."""
    if dtype is torch.bool:
        return not descending
    if dtype.is_floating_point:
        return -math.inf if descending else math.nan
    return torch.iinfo(dtype).min if descending else torch.iinfo(dtype).max


def ranked(node: fx.Node, state: Selections) -> Result:
    """Take the first ``k``, or the ``k``-th, of selected elements in order: a pass checks that there are as many."""
    arguments = arguments_of(node)
    x, k, descending = arguments["self"], arguments["k"], arguments.get("largest", False)
    axis = arguments["dim"] % max(value_of(x).dim(), 1)
    if axis not in state.axes(x):
        return state.recomputed(node)
    selection = _first(x, axis, state)
    if state.axes(x).keys() != {axis} or selection is None or type(k) is not int:
        return None
    first, squeezed = (0, False) if node.target is aten.topk.default else (k - 1, not arguments["keepdim"])
    filled = state.filled(node, x, _last(value_of(x).dtype, descending))
    pair = emit(node, aten.sort.stable, filled, stable=True, dim=axis, descending=descending)
    for part in list(node.users):
        whole = _taken(node, emit(node, operator.getitem, pair, part.args[1]), axis, first, k - first, selection)
        if whole is not None:
            part.replace_all_uses_with(emit(node, aten.squeeze.dim, whole, axis) if squeezed else whole)
    return None


def median(node: fx.Node, state: Selections) -> Result:
    """Return the lower of the middle elements among those that are selected; NaN if there are none."""
    x: Any = node.args[0]
    if value_of(x).dim() != 1 or not value_of(x).is_floating_point():
        return None
    (selection,) = state.axes(x).values()
    filled = state.filled(node, x, math.nan)
    ordered = emit(node, operator.getitem, emit(node, aten.sort.default, filled, 0), 0)
    known = emit(node, aten.sum.default, emit(node, aten.eq.Tensor, filled, filled))
    place = emit(node, aten.clamp_min.default, emit(node, aten.sub.Tensor, known, 1), 0)
    place = emit(node, aten.floor_divide.default, place, 2)
    middle = emit(node, aten.reshape.default, emit(node, aten.index_select.default, ordered, 0, place), [])
    if node.target is aten.median.default:
        nan = emit(node, aten.full.default, [], math.nan, dtype=value_of(x).dtype)
        all_known = emit(node, aten.eq.Tensor, known, selection.count(node))
        middle = emit(node, aten.where.self, all_known, middle, nan)
    return state.with_whole(node, middle)


def slice_(node: fx.Node, state: Selections) -> Result:
    """Take selected elements from a number on, or up to one; negative numbers count from the last one."""
    names = ("self", "dim", "start", "end", "step")
    arguments: dict[str, Any] = {"dim": 0, "start": None, "end": None, "step": 1}
    arguments |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    x, axis = arguments["self"], arguments["dim"] % max(value_of(arguments["self"]).dim(), 1)
    start, end = arguments["start"] or 0, sys.maxsize if arguments["end"] is None else arguments["end"]
    if axis not in state.axes(x):
        return _along(node, state)
    step = arguments["step"]
    if type(start) is not int or type(end) is not int or type(step) is not int:
        return None
    if start == 0 and end == sys.maxsize and step == 1:
        return state.selected[x]
    selection = _first(x, axis, state)
    if selection is None:
        return None
    if start < 0 and end != sys.maxsize:
        return None
    count = stop = selection.count(node)
    begin: Any = start
    if start < 0:
        begin = emit(node, aten.clamp_min.default, emit(node, aten.add.Tensor, count, start), 0)
    elif end < 0:
        stop = emit(node, aten.add.Tensor, count, end)
    elif end != sys.maxsize:
        stop = emit(node, aten.clamp_max.default, count, end)
    whole, size = state.whole(x), selection.size
    if start >= 0 and type(size) is int:
        whole = emit(node, aten.slice.Tensor, whole, axis, start, size if end < 0 else min(end, size), step)
    elif start or step != 1:  # torch's rule of slices would decide whether a dynamic size exceeds a number
        position = emit(node, aten.arange.default, size, dtype=torch.int64)
        if step != 1:
            position = emit(node, aten.clamp_min.default, emit(node, aten.mul.Tensor, position, step), 0)  # it may wrap
        last = emit(node, aten.clamp_min.default, emit(node, aten.sub.Tensor, count, 1), 0)
        places = emit(node, aten.minimum.default, emit(node, aten.add.Tensor, position, begin), last)
        whole = emit(node, aten.index_select.default, whole, axis, places)
    number = emit(node, aten.clamp_min.default, emit(node, aten.sub.Tensor, stop, begin), 0)
    if step != 1:
        number = emit(node, aten.floor_divide.default, emit(node, aten.add.Tensor, number, step - 1), step)
    key = state.numbers.derived("slice", selection.number, start, end, step)
    return _with_size(node, whole, axis, first_elements(node, _size(node, whole, axis), number, key), [x], state)


def _taken(node: fx.Node, whole: fx.Node, axis: int, start: int, length: int, selection: Selection) -> fx.Node | None:
    """Return ``length`` slices of ``whole`` from ``start`` on, of those that come first; None if there are fewer."""
    if start >= 0 and type(selection.size) is int:
        if start + length > selection.size:
            return None
        return emit(node, aten.slice.Tensor, whole, axis, start, start + length)
    count = selection.count(node)
    places = emit(node, aten.arange.start, start, start + length, dtype=torch.int64)
    if start < 0:
        places = emit(node, aten.add.Tensor, places, count)
    last = emit(node, aten.sub.Tensor, count, 1)
    places = emit(node, aten.clamp_min.default, emit(node, aten.minimum.default, places, last), 0)
    return emit(node, aten.index_select.default, whole, axis, places)


def consecutive(node: fx.Node, state: Selections) -> Result:
    """Take one or several selected slices, from the first or from the last one on: a pass checks that they exist."""
    x: Any
    x, dim, start, *rest = node.args
    length: Any = rest[0] if rest else 1
    axis = dim % max(value_of(x).dim(), 1)
    if axis not in state.axes(x):
        return _along(node, state)
    selection = _first(x, axis, state)
    if selection is None or type(start) is not int or type(length) is not int:
        return None
    whole = _taken(node, state.whole(x), axis, start, length, selection)
    if whole is None:
        return None
    return state.with_whole(node, whole if rest else emit(node, aten.select.int, whole, axis, 0))


def _size(before: fx.Node, x: fx.Node, axis: int) -> int | fx.Node:
    size = value_of(x).shape[axis]
    return size if type(size) is int else emit(before, aten.sym_size.int, x, axis)


def _with_size(
    node: fx.Node, whole: fx.Node, axis: int, selection: Selection, operands: list[fx.Node], state: Selections
) -> Result:
    """Return ``whole`` with ``selection`` along ``axis``, and the other selections of ``operands``."""
    value = value_of(node)
    selections = {expression_of(value.shape[axis]): selection}
    for operand in operands:
        for other, selected in state.axes(operand).items():
            if other != axis and selections.setdefault(expression_of(value.shape[other]), selected) is not selected:
                return None
    return None if axes_with(value, selections) is None else Selected(whole, selections)


def cat(node: fx.Node, state: Selections) -> Result:
    """Join tensors: along a selected axis, their masks too."""
    tensors: Any = node.args[0]
    dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    rank = value_of(node).dim()
    axis = dim % max(rank, 1)
    if not any(axis in state.axes(tensor) for tensor in tensors):
        return _along(node, state)
    if any(value_of(tensor).dim() != rank or state.axes(tensor).keys() - {axis} for tensor in tensors):
        return None
    masks: list[fx.Node] = []
    key: list[Any] = []
    for tensor in tensors:
        selection = state.axes(tensor).get(axis)
        size = _size(node, tensor, axis) if selection is None else 0
        masks.append(emit(node, aten.ones.default, [size], dtype=torch.bool) if selection is None else selection.mask)
        key.append(str(value_of(tensor).shape[axis]) if selection is None else selection.number)
    whole = emit(node, aten.cat.default, state.whole(tensors), axis)
    mask = emit(node, aten.cat.default, masks)
    selection = Selection(mask, _size(node, whole, axis), state.numbers.derived("cat", *key))
    return _with_size(node, whole, axis, selection, [], state)


def pad_sequence(node: fx.Node, state: Selections) -> Result:
    """Join sequences of selected elements, padded on the right up to the longest one."""
    arguments = arguments_of(node)
    sequences, padding, value = arguments["sequences"], arguments["padding_value"], value_of(node)
    axis = int(arguments["batch_first"])
    axes = [state.axes(sequence) for sequence in sequences]
    sizes = [value_of(state.whole(sequence)).shape[0] for sequence in sequences]
    equal = len(set(map(expression_of, sizes))) == 1
    if arguments["padding_side"] != "right" or (not equal and not all(type(size) is int for size in sizes)):
        return None
    if any(value_of(sequence).dtype != value.dtype for sequence in sequences):
        return None
    if any(selected.keys() - {0} or not all(s.is_prefix for s in selected.values()) for selected in axes):
        return None
    rows = [state.filled(node, sequence, padding) for sequence in sequences]
    if not equal:
        tail = [
            [0, 0] * (value_of(row).dim() - 1) + [0, max(sizes) - size] for row, size in zip(rows, sizes, strict=True)
        ]
        rows = [emit(node, aten.constant_pad_nd.default, *widened, padding) for widened in zip(rows, tail, strict=True)]
    whole = emit(node, aten.stack.default, rows, 1 - axis)
    if not free_unbacked_symbols(value.shape[axis]):  # a sequence that is not selected is the longest one
        return whole if expression_of(value.shape[axis]) == expression_of(value_of(whole).shape[axis]) else None
    longest = emit(node, aten.full.default, [], 0, dtype=torch.int64)
    key: list[Any] = []
    for sequence, selected in zip(sequences, axes, strict=True):
        if selected:
            longest = emit(node, aten.maximum.default, longest, selected[0].count(node))
        else:
            longest = emit(node, aten.clamp_min.default, longest, _size(node, sequence, 0))
        key.append(selected[0].number if selected else str(value_of(sequence).shape[0]))
    number = state.numbers.derived("pad_sequence", *key)
    return _with_size(node, whole, axis, first_elements(node, _size(node, whole, axis), longest, number), [], state)


def index(node: fx.Node, state: Selections) -> Result:
    """Read selected slices in the order that selected indices have, as of their sort."""
    x: Any = node.args[0]
    if node.target is aten.index_select.default:
        axis, indices = node.args[1] % max(value_of(x).dim(), 1), node.args[2]
        listed: Any = [*[None] * axis, indices]
    else:
        listed = node.args[1]
    at = [(axis, places) for axis, places in enumerate(listed) if places is not None]
    selected = [(axis, places) for axis, places in at if _first(x, axis, state) is not None]
    if len(selected) != 1 or not aligned(node, state, [places for _, places in at]):
        return None
    ((axis, places),) = selected
    if not state.axes(places) or any(value_of(other).dtype is torch.bool for _, other in at):
        return None
    whole = state.filled(node, places, 0)
    from_end = emit(node, aten.add.Tensor, whole, state.axes(x)[axis].count(node))
    whole = emit(node, aten.where.self, emit(node, aten.lt.Scalar, whole, 0), from_end, whole)
    read = [whole if other is places else other and state.filled(node, other, 0) for other in listed]
    return state.with_whole(node, emit(node, aten.index.Tensor, state.whole(x), read))


def arange(node: fx.Node, state: Selections) -> Result:
    """Number the selected elements in order."""
    arguments = arguments_of(node)
    end = arguments["end"]
    if end not in state.sizes or arguments.get("start", 0) != 0 or arguments.get("step", 1) != 1:
        return None
    selection = state.sizes[end]
    counted = emit(node, aten.cumsum.default, emit(node, aten._to_copy.default, selection.mask, dtype=torch.int64), 0)
    order = emit(node, aten.sub.Tensor, counted, 1)
    return state.with_whole(node, emit(node, aten._to_copy.default, order, dtype=value_of(node).dtype))


def split(node: fx.Node, state: Selections) -> Result:
    """Divide the selected elements into parts of known sizes: a pass checks that there are as many."""
    x, sizes = node.args[:2]
    dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    axis = dim % max(value_of(x).dim(), 1)
    if axis not in state.axes(x):  # type: ignore[arg-type]
        return along(2)(node, state)
    selection = _first(x, axis, state)  # type: ignore[arg-type]
    if selection is None or not all(type(size) is int for size in sizes):  # type: ignore[union-attr]
        return None
    whole = _taken(node, state.whole(x), axis, 0, sum(sizes), selection)  # type: ignore[arg-type]
    return whole and state.with_whole(node, emit(node, node.target, whole, sizes, axis))  # type: ignore[arg-type]
