"""Item-to-tensor rewriting: operators on ``tensor.item()`` as operators on the tensor.

For output types that only have tensors. In ``x[i.item() :][:4]``, in a write to a row of a cache at a counter, and in
the gradients of these, all sizes are static and only the start of the slice is data-dependent. A read becomes a gather,
a write a ``where`` over positions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.canonicalization.node_rewriting import TENSOR_OVERLOADS, converted, emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs

_ITEM_OPERATORS = (aten.item.default, aten._local_scalar_dense.default)
_ARITHMETIC = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    torch.sym_max: aten.maximum.default,
    torch.sym_min: aten.minimum.default,
}


def items_to_tensors(program: ExportedProgram) -> ExportedProgram:
    """Return ``program``, which is functional, with rank-0 tensors in place of data-dependent scalars."""
    if not any(node.target in _REWRITES and _takes_item(node) for node in program.graph.nodes):
        return program

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        for node in list(graph.nodes):
            if node.target in _REWRITES and _takes_item(node):
                made = _REWRITES[node.target](node)
                if made is not None:
                    node.replace_all_uses_with(made)
        graph.eliminate_dead_code()

    return with_rewritten_graphs(program, rewrite)


def _takes_item(node: fx.Node) -> bool:
    """Return whether ``node`` takes a data-dependent scalar and all its sizes are static."""
    position = _argument(node, _INDEX_ARGUMENT[node.target])
    tensors = [value_of(each) for each in (node, *node.all_input_nodes)]
    known = all(type(size) is int for each in tensors if isinstance(each, Tensor) for size in each.shape)
    return isinstance(position, fx.Node) and isinstance(value_of(position), SymInt) and known


def _argument(node: fx.Node, place: int, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else default


def _constant(before: fx.Node, value: int) -> fx.Node:
    return emit(before, aten.full.default, [], value, dtype=torch.int64)


def _tensor_of(number: Any, before: fx.Node) -> fx.Node | None:
    """Return ``number`` as a rank-0 int64 tensor if it is computed from items of tensors, else None."""
    if isinstance(number, int):
        return _constant(before, number)
    if not isinstance(number, fx.Node):
        return None
    if number.target in _ITEM_OPERATORS:
        source = number.args[0]
        read = emit(before, aten.view.default, source, [])
        if value_of(read).dtype != torch.int64:
            read = emit(before, aten._to_copy.default, read, dtype=torch.int64)
        return read
    if number.target not in _ARITHMETIC or len(number.args) != 2:
        return None
    parts = [_tensor_of(each, before) for each in number.args]
    return None if None in parts else emit(before, _ARITHMETIC[number.target], *parts)


def _start(node: fx.Node, axis: int, length: int) -> fx.Node | None:
    """Return the start of ``length`` elements along ``axis``: negative starts wrapped, then clamped."""
    start = _tensor_of(_argument(node, _INDEX_ARGUMENT[node.target]), node)
    if start is None:
        return None
    size = value_of(node.args[0]).shape[axis]
    from_end = emit(node, aten.add.Tensor, start, _constant(node, size))
    start = emit(node, aten.where.self, emit(node, aten.lt.Tensor, start, _constant(node, 0)), from_end, start)
    last = emit(node, aten.minimum.default, start, _constant(node, size - length))
    return emit(node, aten.maximum.default, last, _constant(node, 0))


def _positions(node: fx.Node, number: int, step: int = 1) -> fx.Node:
    return emit(node, aten.arange.start_step, 0, number * step, step, dtype=torch.int64)


def _slice(node: fx.Node) -> fx.Node | None:
    axis, step, number = _argument(node, 1, 0), _argument(node, 4, 1), value_of(node)
    number = number.shape[axis]
    if not number or not isinstance(step, int):
        return None
    start = _start(node, axis, (number - 1) * step + 1)
    if start is None:
        return None
    positions = emit(node, aten.add.Tensor, _positions(node, number, step), start)
    return emit(node, aten.index_select.default, node.args[0], axis, positions)


def _select(node: fx.Node) -> fx.Node | None:
    start = _start(node, axis := _argument(node, 1), 1)
    if start is None:
        return None
    row = emit(node, aten.index_select.default, node.args[0], axis, emit(node, aten.view.default, start, [1]))
    return emit(node, aten.view.default, row, list(value_of(node).shape))


def _slice_scatter(node: fx.Node) -> fx.Node | None:
    return _write_slice(node, node.args[1], _argument(node, 2, 0)) if _argument(node, 5, 1) == 1 else None


def _select_scatter(node: fx.Node) -> fx.Node | None:
    axis = _argument(node, 2)
    return _write_slice(node, emit(node, aten.unsqueeze.default, node.args[1], axis), axis)


def _write_slice(node: fx.Node, part: Any, axis: int) -> Any:
    """Return the first argument with ``part`` written at the start along ``axis``: a ``where`` over positions."""
    x, length = value_of(node), value_of(part).shape[axis]
    size = x.shape[axis]
    if not length:
        return node.args[0]
    if (start := _start(node, axis, length)) is None:
        return None
    apart = emit(node, aten.sub.Tensor, _positions(node, size), start)
    after = emit(node, aten.ge.Tensor, apart, _constant(node, 0))
    inside = emit(node, aten.logical_and.default, after, emit(node, aten.lt.Tensor, apart, _constant(node, length)))
    read = emit(node, aten.minimum.default, apart, _constant(node, length - 1))
    read = emit(node, aten.maximum.default, read, _constant(node, 0))
    shape = [size if each == axis % x.dim() else 1 for each in range(x.dim())]
    mask = emit(node, aten.view.default, inside, shape)
    return emit(node, aten.where.self, mask, emit(node, aten.index_select.default, part, axis, read), node.args[0])


def _binary(onto: OpOverload) -> Callable[[fx.Node], fx.Node | None]:
    def rewrite(node: fx.Node) -> fx.Node | None:
        """Emit ``onto`` with the scalar as a tensor of the promoted dtype."""
        x = node.args[0]
        number = None if len(node.args) > 2 or node.kwargs else _tensor_of(_argument(node, 1), node)
        if number is None or not isinstance(x, fx.Node):
            return None
        dtype = torch.result_type(value_of(x), 1)
        return emit(node, onto, converted(node, x, dtype), converted(node, number, dtype))

    return rewrite


_BINARY_OPERATORS = {scalar: tensor for scalar, tensor in TENSOR_OVERLOADS.items() if scalar is not aten.div.Scalar} | {
    each: each for each in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor)
}
_REWRITES: dict[Any, Any] = {
    **{each: _binary(onto) for each, onto in _BINARY_OPERATORS.items()},
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.slice_scatter.default: _slice_scatter,
    aten.select_scatter.default: _select_scatter,
}
_INDEX_ARGUMENT: dict[Any, int] = {
    **dict.fromkeys(_BINARY_OPERATORS, 1),
    aten.slice.Tensor: 2,
    aten.select.int: 2,
    aten.slice_scatter.default: 3,
    aten.select_scatter.default: 3,
}
"""Position of the scalar argument: an operand, or the start of a slice."""
