"""Dynamic sizes as tensors, for TOSA, whose attributes are static.

A tensor with a new dynamic axis (``expand``, ``full``, ``repeat``) is a ``where`` whose condition has that axis: it is
computed from a tensor that has it already. A size in arithmetic (``x / x.shape[0]``) is a sum of ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch.export import ExportedProgram

from fx_importer.canonicalization.axes_of_ones import Axes, Size
from fx_importer.canonicalization.dynamic_axes import repeat
from fx_importer.canonicalization.node_rewriting import (
    TENSOR_OVERLOADS,
    converted,
    emit,
    same_size,
    same_type,
    value_of,
)
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs


def sizes_to_tensors(program: ExportedProgram) -> ExportedProgram:
    """Return ``program``, which is decomposed, with tensors in place of the dynamic sizes that operators take."""
    return with_rewritten_graphs(program, _rewrite) if _is_dynamic(program.graph) else program


def _is_dynamic(graph: fx.Graph) -> bool:
    tensors = [value for node in graph.find_nodes(op="placeholder") if isinstance(value := value_of(node), Tensor)]
    return any(isinstance(size, SymInt) for tensor in tensors for size in tensor.shape)


def _rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
    axes = Axes()
    for node in list(graph.nodes):
        made = None
        if node.op == "call_function" and node.target in _REWRITES:
            made = _REWRITES[node.target](node, axes)
        if made is not None:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
        axes.add(node if made is None else made)
    graph.eliminate_dead_code()


def _filled(node: fx.Node, axes: Axes, shape: Sequence[Size], x: fx.Node, dtype: torch.dtype) -> fx.Node | None:
    """Return ``x`` broadcast to ``shape``: what ``where`` picks everywhere."""
    ones = axes.ones(node, shape)
    if ones is None:
        return None
    if dtype is torch.bool:
        return emit(node, aten.logical_and.default, ones, x)
    # The other operand is never picked. It is unlike what programs fill tensors with: torch-mlir folds a where of equal
    # operands without regard to its shape.
    other = emit(node, aten.full.default, [1] * len(shape), _UNLIKELY, dtype=dtype)
    return emit(node, aten.where.self, ones, x, other)


def _expand(node: fx.Node, axes: Axes) -> fx.Node | None:
    x: Any = node.args[0]
    old, new = value_of(x).shape, value_of(node).shape
    old = [1] * (len(new) - len(old)) + list(old)
    added = [isinstance(b, SymInt) and not same_size(a, b) for a, b in zip(old, new, strict=True)]
    if not any(added):
        return None
    # Dynamic axes that x has need not be computed again.
    shape = [1 if same_size(a, b) else b for a, b in zip(old, new, strict=True)]
    return _filled(node, axes, shape, x, value_of(x).dtype)


def _full(node: fx.Node, axes: Axes) -> fx.Node | None:
    result = value_of(node)
    if not any(isinstance(size, SymInt) for size in result.shape):
        return None
    value: Any = node.args[1] if node.target in (aten.full.default, aten.full_like.default) else _FILLS[node.target]
    if isinstance(value, fx.Node):
        return None
    x = emit(node, aten.full.default, [], value, dtype=result.dtype)
    return _filled(node, axes, result.shape, x, result.dtype)


def _repeat(node: fx.Node, axes: Axes) -> fx.Node | None:
    repeats = node.args[1]
    assert isinstance(repeats, list | tuple)
    static = all(isinstance(each, int) for each in repeats)
    return repeat(node) if static and any(isinstance(size, SymInt) for size in value_of(node).shape) else None


def _arithmetic(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Emit the operator with a size as a rank-0 tensor, in the dtype of a Python number beside the other operand."""
    if len(node.args) != 2 or node.kwargs:
        return None
    tensors = [each for each in node.args if isinstance(value_of(each), Tensor)]
    sizes = [each for each in node.args if isinstance(value_of(each), SymInt)]
    if len(tensors) != 1 or len(sizes) != 1:
        return None
    dtype = torch.result_type(value_of(tensors[0]), 1)
    if node.target in _DIVISIONS:
        dtype = value_of(node).dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    number = axes.number(node, value_of(sizes[0]), wide)
    if number is None:
        return None
    parts = [number if each is sizes[0] else converted(node, each, wide) for each in node.args]
    result = emit(node, TENSOR_OVERLOADS.get(node.target, node.target), *parts)
    return converted(node, result, value_of(node).dtype)


def _scalar_tensor(node: fx.Node, axes: Axes) -> fx.Node | None:
    value = value_of(node.args[0])
    return axes.number(node, value, value_of(node).dtype) if isinstance(value, SymInt) else None


def _index(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Read ``x[arange(len(x)), i]``, an element of each row, by ``gather``; other indices stay."""
    x, indices = node.args
    assert isinstance(indices, list | tuple)
    if len(indices) != 2 or not all(isinstance(each, fx.Node) for each in indices):
        return None
    rows, places = indices
    size = value_of(x).shape[0]
    if not isinstance(size, SymInt) or not isinstance(value_of(x).shape[1], int) or not _counts(rows, size):
        return None
    shape = value_of(node).shape
    number = value_of(x).dim() - 2
    picked = len(shape) - number
    axis = next((axis for axis in range(picked) if isinstance(shape[axis], SymInt)), None)
    if axis != 0 or value_of(rows).dim() != picked or any(isinstance(each, SymInt) for each in shape[1:]):
        return None
    bound = emit(node, aten.full.default, [], value_of(x).shape[1], dtype=torch.int64)
    zero = emit(node, aten.full.default, [], 0, dtype=torch.int64)
    places = converted(node, places, torch.int64)
    wrapped = emit(node, aten.add.Tensor, places, bound)
    places = emit(node, aten.where.self, emit(node, aten.lt.Tensor, places, zero), wrapped, places)
    wide = _filled(node, axes, shape[:picked], places, torch.int64)
    if wide is None:
        return None
    rest = value_of(x).shape[2:]
    flat = emit(node, aten.reshape.default, wide, [-1, _product(shape[1:picked])] + [1] * number)
    flat = emit(node, aten.expand.default, flat, [-1, -1, *rest])
    found = emit(node, aten.gather.default, x, 1, flat)
    return emit(node, aten.reshape.default, found, [-1, *shape[1:]])


def _product(sizes: Sequence[Any]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _counts(node: Any, size: SymInt) -> bool:
    """Return whether ``node`` is ``arange(size)`` along its first axis, which is the only one that is longer than 1."""
    shape = value_of(node).shape
    if not shape or not same_size(shape[0], size) or any(type(each) is not int or each != 1 for each in shape[1:]):
        return False
    while _keeps_elements(node):
        node = node.args[0]
    if node.target is not aten.arange.start_step or not same_size(value_of(node).shape[0], size):
        return False
    start, _, step = [*node.args, 1][:3]
    return start == 0 and step == 1


def _keeps_elements(node: Any) -> bool:
    """Return whether ``node`` returns the elements of its argument: a view, a copy, a slice of all, or a sum with 0."""
    if node.target in _VIEWS:
        return True
    if node.target is aten.slice.Tensor:
        step = node.args[4] if len(node.args) > 4 else 1
        return bool(step == 1) and same_type(value_of(node.args[0]), value_of(node))
    if node.target is not aten.add.Tensor or node.args[1] != 0 or len(node.args) > 2 or node.kwargs:
        return False
    return same_type(value_of(node.args[0]), value_of(node))


def _select(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Select a place of a dynamic axis by ``index_select``, one counted from the end on the reversed axis."""
    x, axis, place = node.args
    assert isinstance(axis, int)
    if not isinstance(place, int) or not isinstance(value_of(x).shape[axis], SymInt):
        return None
    axis %= value_of(x).dim()
    x = x if place >= 0 else emit(node, aten.flip.default, x, [axis])
    at = emit(node, aten.full.default, [1], place if place >= 0 else -place - 1, dtype=torch.int64)
    return emit(node, aten.squeeze.dim, emit(node, aten.index_select.default, x, axis, at), axis)


def _copy(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Broadcast what is copied to the shape of the destination."""
    result = value_of(node)
    if not any(isinstance(size, SymInt) for size in result.shape):
        return None
    x = converted(node, node.args[1], result.dtype)
    return x if same_type(value_of(x), result) else _filled(node, axes, result.shape, x, result.dtype)


def _slice_scatter(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Return what is written over all elements."""
    source = node.args[1]
    assert isinstance(source, fx.Node)
    return source if same_type(value_of(source), value_of(node)) else None


_UNLIKELY = 77
_VIEWS = (aten.reshape.default, aten.view.default, aten.unsqueeze.default, aten.clone.default, aten.alias.default)
_FILLS: dict[Any, int] = {
    aten.zeros.default: 0,
    aten.ones.default: 1,
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
}
_DIVISIONS = (aten.div.Tensor, aten.div.Scalar)
_REWRITES: dict[Any, Any] = {
    aten.expand.default: _expand,
    aten.repeat.default: _repeat,
    **dict.fromkeys((aten.full.default, aten.full_like.default, *_FILLS), _full),
    **dict.fromkeys((*TENSOR_OVERLOADS, *TENSOR_OVERLOADS.values()), _arithmetic),
    aten.scalar_tensor.default: _scalar_tensor,
    aten.index.Tensor: _index,
    aten.select.int: _select,
    aten.copy.default: _copy,
    aten.slice_scatter.default: _slice_scatter,
}
