"""Dynamic sizes as tensors, for TOSA, whose attributes are static.

A tensor with a new dynamic axis (``expand``, ``full``, ``repeat``) is a ``where`` whose condition has that axis: it is
computed from a tensor that has it already. A size in arithmetic (``x / x.shape[0]``) is a sum of ones.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.fx.node import map_aggregate, map_arg

from fx_importer.fx_graph.emission import emit, fake_mode_of_values, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxPass
from fx_importer.fx_passes.node_rewriting import FACTORS, TENSOR_OVERLOADS, converted, same_size, same_type
from fx_importer.fx_passes.sizes.axes_of_ones import Axes, Size
from fx_importer.fx_passes.sizes.dynamic_axes import repeat
from fx_importer.fx_passes.sizes.size_fractions import size_by_fraction


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
        if node.op == "call_function":
            made = _REWRITES[node.target](node, axes) if node.target in _REWRITES else size_by_fraction(node)
        elif node.op == "output":
            node.args = map_arg(node.args, partial(_number_result, node))
        if made is not None:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
        emitted = node if made is None else made
        axes.add(emitted)
        if emitted.op == "call_function" and torch.Tag.pointwise in getattr(emitted.target, "tags", ()):
            _align_ranks(emitted)
    graph.eliminate_dead_code()


def _number_result(output: fx.Node, result: fx.Node) -> fx.Node:
    """Return a size that is a result as a rank-0 tensor; other results, and inputs, as they are."""
    if not isinstance(value_of(result), SymInt) or result.op == "placeholder":
        return result
    return _as_tensor(output, result)


def _as_tensor(before: fx.Node, size: fx.Node) -> fx.Node:
    """Return a computed size as a rank-0 tensor. Its example value is made by hand: torch would guard on the size."""
    with before.graph.inserting_before(before):
        node = before.graph.call_function(aten.scalar_tensor.default, (size,), {"dtype": torch.int64})
    with fake_mode_of_values(before, map_aggregate(before.args, value_of)):
        node.meta["val"] = torch.empty((), dtype=torch.int64)
    return node


def _align_ranks(node: fx.Node) -> None:
    """Give operands the rank of the result: C++ adds axes to one of two dynamic sizes by a reshape that infers both."""
    rank = value_of(node).dim() if isinstance(value_of(node), Tensor) else 0
    node.args = map_arg(node.args, lambda x: _aligned(node, x, rank))


def _aligned(before: fx.Node, x: fx.Node, rank: int) -> fx.Node:
    """Return a tensor of two dynamic sizes with axes of size 1 in front, up to ``rank``."""
    value = value_of(x)
    if not isinstance(value, Tensor) or sum(isinstance(size, SymInt) for size in value.shape) < 2:
        return x
    for _ in range(rank - value.dim()):
        x = emit(before, aten.unsqueeze.default, x, 0)
    return x


def _filled(node: fx.Node, axes: Axes, shape: Sequence[Size], x: fx.Node, dtype: torch.dtype) -> fx.Node | None:
    """Return ``x`` broadcast to ``shape``: what ``where`` picks everywhere."""
    ones = axes.ones(node, shape)
    if ones is None:
        return None
    x = _aligned(node, x, len(shape))
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
    if not result.shape and isinstance(value_of(node.args[1]), SymInt):
        return _number(node, node.args[1], axes, result.dtype)
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
    static = all(isinstance(count, int) for count in repeats)
    return repeat(node) if static and any(isinstance(size, SymInt) for size in value_of(node).shape) else None


def _arithmetic(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Emit the operator with a size as a rank-0 tensor, in the dtype to which a Python number is promoted with the
    other operand."""
    if len(node.args) != 2 or node.kwargs:
        return _scaled(node, axes) if node.target in _SUMS else None
    tensors = [argument for argument in node.args if isinstance(value_of(argument), Tensor)]
    sizes = [argument for argument in node.args if isinstance(value_of(argument), SymInt | SymFloat)]
    if len(tensors) != 1 or len(sizes) != 1:
        return None
    dtype = torch.result_type(value_of(tensors[0]), 1)
    if node.target in _DIVISIONS:
        dtype = value_of(node).dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    number = _number(node, sizes[0], axes, wide)
    if number is None:
        return None
    if node.target not in FACTORS:  # eager rounds other operands to half precision
        number = converted(node, converted(node, number, dtype), wide)
    parts = [number if argument is sizes[0] else converted(node, argument, wide) for argument in node.args]
    result = emit(node, TENSOR_OVERLOADS.get(node.target, node.target), *parts)
    return converted(node, result, value_of(node).dtype)


def _scaled(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Multiply by a size that a sum or difference of tensors scales its second operand with."""
    target: Any = node.target
    a, b, *_ = node.args
    dtype, alpha = value_of(node).dtype, node.kwargs.get("alpha")
    if not isinstance(value_of(alpha), SymInt) or dtype not in (torch.float32, torch.int32, torch.int64):
        return None
    factor = _number(node, alpha, axes, dtype)
    if factor is None or not all(isinstance(value_of(operand), Tensor) for operand in (a, b)):
        return None
    scaled = emit(node, aten.mul.Tensor, converted(node, b, dtype), factor)
    return emit(node, target, converted(node, a, dtype), scaled)


def _number(before: fx.Node, number: Any, axes: Axes, dtype: torch.dtype) -> fx.Node | None:
    """Return a number that is computed from sizes as a rank-0 tensor; fractions by the operators that compute them."""
    value = value_of(number)
    if isinstance(value, SymInt):
        tensor = axes.number(before, value, dtype)
        return converted(before, _as_tensor(before, number), dtype) if tensor is None else tensor
    if not isinstance(number, fx.Node):
        return emit(before, aten.full.default, [], number, dtype=dtype)
    if number.target is torch.sym_float:
        return _number(before, number.args[0], axes, dtype)
    parts = [_number(before, argument, axes, dtype) for argument in number.args]
    if number.target not in _FRACTIONS or None in parts or not dtype.is_floating_point:
        return None
    return emit(before, _FRACTIONS[number.target], *parts)


def _clamp(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Return the maximum and minimum with bounds, one of them a size."""
    x, *bounds = node.args
    if not any(isinstance(value_of(bound), SymInt) for bound in bounds):
        return None
    for bound, operator_of in zip(bounds, (aten.maximum.default, aten.minimum.default), strict=False):
        number = None if bound is None else _number(node, bound, axes, value_of(node).dtype)
        if bound is not None and number is None:
            return None
        x = x if number is None else emit(node, operator_of, x, number)
    return x  # type: ignore[return-value]


def _scalar_tensor(node: fx.Node, axes: Axes) -> fx.Node | None:
    value, dtype = value_of(node.args[0]), value_of(node).dtype
    if isinstance(value, SymFloat):
        return _number(node, node.args[0], axes, dtype)
    return axes.number(node, value, dtype) if isinstance(value, SymInt) else None


def _select(node: fx.Node, axes: Axes) -> fx.Node | None:
    """Select a place of a dynamic axis by ``index_select``, one counted from the end on the reversed axis."""
    x, axis, position = node.args
    assert isinstance(axis, int)
    if not isinstance(position, int) or not isinstance(value_of(x).shape[axis], SymInt):
        return None
    axis %= value_of(x).dim()
    x = x if position >= 0 else emit(node, aten.flip.default, x, [axis])
    at = emit(node, aten.full.default, [1], position if position >= 0 else -position - 1, dtype=torch.int64)
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
_FILLS: dict[Any, int] = {
    aten.zeros.default: 0,
    aten.ones.default: 1,
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
}
_FRACTIONS = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    operator.pow: aten.pow.Tensor_Tensor,
}
_SUMS = (aten.add.Tensor, aten.sub.Tensor)
_DIVISIONS = (aten.div.Tensor, aten.div.Scalar)
_REWRITES: dict[Any, Any] = {
    aten.expand.default: _expand,
    aten.repeat.default: _repeat,
    **dict.fromkeys((aten.full.default, aten.full_like.default, *_FILLS), _full),
    **dict.fromkeys((*TENSOR_OVERLOADS, *TENSOR_OVERLOADS.values()), _arithmetic),
    aten.scalar_tensor.default: _scalar_tensor,
    aten.clamp.default: _clamp,
    aten.select.int: _select,
    aten.copy.default: _copy,
    aten.slice_scatter.default: _slice_scatter,
}


SIZES_TO_TENSORS = FxPass(
    "sizes-to-tensors", lambda program, _: sizes_to_tensors(program), lambda context: not context.target.dynamic_shapes
)
