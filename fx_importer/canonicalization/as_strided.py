"""``as_strided`` and ``as_strided_scatter`` as views, or as gathers and scatters on the flattened memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import SymInt, Tensor, fx
from torch.fx.node import Argument

from fx_importer.canonicalization.node_rewriting import NodeRewrites, emit, same_size, value_of
from fx_importer.fx_graph.operators import aten

Size = int | SymInt


def _as_strided(node: fx.Node) -> fx.Node | None:
    """Rewrite ``as_strided`` of a dense argument as reshape and permute if it is a view, else as a gather.

    Returns None if the argument is not dense.
    """
    source = node.args[0]
    assert isinstance(source, fx.Node)
    base: Tensor = value_of(source)
    sizes, strides = list(node.args[1]), list(node.args[2])  # type: ignore[arg-type]
    offset = node.args[3] if len(node.args) > 3 else None
    order = _memory_order(base.shape, base.stride())
    if order is None or not same_size(base.storage_offset(), 0):
        return None
    memory = emit(node, aten.permute.default, source, order)
    result: Tensor = value_of(node)
    order = _memory_order(result.shape, result.stride())
    if order is not None and offset in (None, 0) and same_size(base.numel(), result.numel()):
        view = emit(node, aten.reshape.default, memory, [sizes[axis] for axis in order])
        return emit(node, aten.permute.default, view, [order.index(axis) for axis in range(len(order))])
    flat = emit(node, aten.reshape.default, memory, [-1])
    return emit(node, aten.index.Tensor, flat, [_positions(node, sizes, strides, offset or 0)])


def _as_strided_scatter(node: fx.Node) -> fx.Node | None:
    """Rewrite ``as_strided_scatter`` into a dense argument as ``index_put`` on its flattened memory."""
    base_node, source = node.args[0], node.args[1]
    assert isinstance(base_node, fx.Node)
    base: Tensor = value_of(base_node)
    sizes, strides = list(node.args[2]), list(node.args[3])  # type: ignore[arg-type]
    offset = node.args[4] if len(node.args) > 4 else None
    order = _memory_order(base.shape, base.stride())
    if order is None or not same_size(base.storage_offset(), 0):
        return None
    memory = emit(node, aten.permute.default, base_node, order)
    flat = emit(node, aten.reshape.default, memory, [-1])
    positions = _positions(node, sizes, strides, offset or 0)
    positions, source = (emit(node, aten.reshape.default, each, [-1]) for each in (positions, source))
    written = emit(node, aten.index_put.default, flat, [positions], source)
    shaped = emit(node, aten.reshape.default, written, [base.shape[axis] for axis in order])
    return emit(node, aten.permute.default, shaped, [order.index(axis) for axis in range(len(order))])


def _memory_order(sizes: Sequence[Size], strides: Sequence[Size]) -> list[int] | None:
    """Return the axes from the slowest to the fastest varying if the layout is dense without overlap, else None."""
    axes = list(range(len(sizes)))
    orders = [axes]
    if not any(isinstance(stride, SymInt) for stride in strides):
        orders.append(sorted(axes, key=lambda axis: -strides[axis]))
    return next((order for order in orders if _fills_memory(order, sizes, strides)), None)


def _fills_memory(order: list[int], sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    expected: Size = 1
    for axis in reversed(order):
        if not same_size(sizes[axis], 1) and not same_size(strides[axis], expected):
            return False  # the stride of an axis of size 1 is irrelevant
        expected = expected * sizes[axis]
    return True


def _positions(node: fx.Node, sizes: list[Argument], strides: list[Argument], offset: object) -> fx.Node:
    """Emit the memory position of each element: sum over the axes of index times stride, plus the offset."""
    total = emit(node, aten.full.default, [], offset, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        indices = emit(node, aten.arange.start_step, 0, size, 1, dtype=torch.int64)
        column = emit(node, aten.reshape.default, indices, [-1] + [1] * (len(sizes) - axis - 1))
        total = emit(node, aten.add.Tensor, total, emit(node, aten.mul.Tensor, column, stride))
    return total


STRIDES: NodeRewrites = {aten.as_strided.default: _as_strided, aten.as_strided_scatter.default: _as_strided_scatter}
