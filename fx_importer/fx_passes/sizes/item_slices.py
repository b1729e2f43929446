"""Slices at starts that are computed from items of tensors, for output types that only have tensors.

In ``x[i.item() :][:4]``, in a write to a row of a cache at a counter, and in the gradients of these, the number of
elements is static and only the start of the slice is data-dependent. A read becomes a gather, a write a ``where`` over
positions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.sizes.item_numbers import Consumer, ItemNumbers


def _if_static(rewrite: Consumer) -> Consumer:
    """Return ``rewrite`` for the calls that take a number from items, and whose sizes do not depend on values."""

    def checked(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
        position = _argument(node, _START_ARGUMENT[node.target])
        tensors = [value_of(source) for source in (node, *node.all_input_nodes)]
        unknown = any(free_unbacked_symbols(tensor.shape) for tensor in tensors if isinstance(tensor, Tensor))
        data_dependent = isinstance(position, fx.Node) and isinstance(value_of(position), SymInt)
        return rewrite(node, numbers) if data_dependent and not unknown else None

    return checked


def _argument(node: fx.Node, position: int, default: Any = None) -> Any:
    return node.args[position] if len(node.args) > position else default


def _constant(before: fx.Node, value: int) -> fx.Node:
    return emit(before, aten.full.default, [], value, dtype=torch.int64)


def _start(node: fx.Node, numbers: ItemNumbers, axis: int, length: int) -> fx.Node | None:
    """Return the start of ``length`` elements along ``axis``: negative starts wrapped, then clamped."""
    start = numbers.of(_argument(node, _START_ARGUMENT[node.target]))
    if start is None:
        return None
    size = _tensor(node, _size(node, axis))
    from_end = emit(node, aten.add.Tensor, start, size)
    start = emit(node, aten.where.self, emit(node, aten.lt.Tensor, start, _constant(node, 0)), from_end, start)
    last = emit(node, aten.minimum.default, start, emit(node, aten.sub.Tensor, size, _constant(node, length)))
    return emit(node, aten.maximum.default, last, _constant(node, 0))


def _size(node: fx.Node, axis: int) -> Any:
    """Return the size of the first argument along ``axis``, a node if it is dynamic."""
    size = value_of(node.args[0]).shape[axis]
    return emit(node, aten.sym_size.int, node.args[0], axis) if isinstance(size, SymInt) else size


def _tensor(before: fx.Node, size: Any) -> fx.Node:
    if isinstance(size, int):
        return _constant(before, size)
    return emit(before, aten.scalar_tensor.default, size, dtype=torch.int64)


def _positions(node: fx.Node, number: Any, step: int = 1) -> fx.Node:
    end = number * step if isinstance(number, int) else number
    return emit(node, aten.arange.start_step, 0, end, step, dtype=torch.int64)


def _slice(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    axis, step, number = _argument(node, 1, 0), _argument(node, 4, 1), value_of(node)
    number = number.shape[axis]
    if type(number) is not int or not number or not isinstance(step, int):
        return None
    start = _start(node, numbers, axis, (number - 1) * step + 1)
    if start is None:
        return None
    positions = emit(node, aten.add.Tensor, _positions(node, number, step), start)
    return emit(node, aten.index_select.default, node.args[0], axis, positions)


def _select(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    start = _start(node, numbers, axis := _argument(node, 1), 1)
    if start is None:
        return None
    row = emit(node, aten.index_select.default, node.args[0], axis, emit(node, aten.view.default, start, [1]))
    return emit(node, aten.squeeze.dim, row, axis)


def _slice_scatter(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    return _write_slice(node, numbers, node.args[1], _argument(node, 2, 0)) if _argument(node, 5, 1) == 1 else None


def _select_scatter(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    axis = _argument(node, 2)
    return _write_slice(node, numbers, emit(node, aten.unsqueeze.default, node.args[1], axis), axis)


def _write_slice(node: fx.Node, numbers: ItemNumbers, part: Any, axis: int) -> Any:
    """Return the first argument with ``part`` written at the start along ``axis``: a ``where`` over positions."""
    x, length = value_of(node), value_of(part).shape[axis]
    if type(length) is not int:
        return None
    if not length:
        return node.args[0]
    size = _size(node, axis)
    if (start := _start(node, numbers, axis, length)) is None:
        return None
    apart = emit(node, aten.sub.Tensor, _positions(node, size), start)
    after = emit(node, aten.ge.Tensor, apart, _constant(node, 0))
    inside = emit(node, aten.logical_and.default, after, emit(node, aten.lt.Tensor, apart, _constant(node, length)))
    read = emit(node, aten.minimum.default, apart, _constant(node, length - 1))
    read = emit(node, aten.maximum.default, read, _constant(node, 0))
    shape = [size if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    mask = emit(node, aten.view.default, inside, shape)
    return emit(node, aten.where.self, mask, emit(node, aten.index_select.default, part, axis, read), node.args[0])


SLICES: dict[Any, Consumer] = {
    aten.slice.Tensor: _if_static(_slice),
    aten.select.int: _if_static(_select),
    aten.slice_scatter.default: _if_static(_slice_scatter),
    aten.select_scatter.default: _if_static(_select_scatter),
}
_START_ARGUMENT: dict[Any, int] = {
    aten.slice.Tensor: 2,
    aten.select.int: 2,
    aten.slice_scatter.default: 3,
    aten.select_scatter.default: 3,
}
