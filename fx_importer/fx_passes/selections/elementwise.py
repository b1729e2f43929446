"""Operators that compute each element of a selected axis alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import SymInt, fx
from torch._ops import OpOverload

from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten, prims
from fx_importer.fx_passes.node_rewriting import arguments_of
from fx_importer.fx_passes.selections.reads import Result, aligned
from fx_importer.fx_passes.selections.selected import Selections, expression_of, nodes_in

_POINTWISE = frozenset(
    (
        *(aten.detach.default, aten.alias.default, aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout),
        *(aten.to.device, aten.to.other, aten.type_as.default, prims.convert_element_type.default),
        *(aten.lift_fresh_copy.default, aten.contiguous.default, aten.hardswish.default, aten.rsub.Tensor),
        *(aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.fill.Scalar, aten.fill.Tensor),
        *(
            aten.where.ScalarOther,
            aten.where.ScalarSelf,
            aten.where.Scalar,
            aten.masked_fill.Tensor,
            aten.isclose.default,
        ),
        *(aten.true_divide.Scalar, aten.expand_as.default, aten.silu.default, aten.log_sigmoid.default),
        *(aten.add.Scalar, aten.sub.Scalar, aten.mul.Scalar, aten.div.Scalar, aten.one_hot.default),
        *(aten.isin.Tensor_Scalar, aten.broadcast_tensors.default),
        *(aten.__and__.Tensor, aten.__or__.Tensor, aten.__xor__.Tensor),
        *(aten.__and__.Scalar, aten.__or__.Scalar, aten.__xor__.Scalar),
    )
)
"""Operators without the tag of pointwise ones."""

_SCALED = {f"quantized_decomposed.{name}quantize_per_tensor.default" for name in ("", "de")}
"""Operators with a scale for a whole tensor, which torchao registers."""

_DIVISIONS = frozenset(
    (
        *(aten.div.Tensor_mode, aten.floor_divide.default, aten.remainder.Tensor, aten.remainder.Scalar_Tensor),
        *(aten.fmod.Tensor,),
    )
)


def is_pointwise(target: Any) -> bool:
    """Return whether ``target`` computes each element of its result from one element of each operand."""
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return torch.Tag.pointwise in target.tags or target in _POINTWISE or target in _DIVISIONS or str(target) in _SCALED


def pointwise(node: fx.Node, state: Selections) -> Result:
    """Compute with all elements, where operands have the same selections."""
    if not aligned(node, state, nodes_in((node.args, node.kwargs))):
        return None
    if node.target in _DIVISIONS and not value_of(node).is_floating_point():
        x, divisor = node.args[:2]
        return state.recomputed(node, state.whole(x), state.filled(node, divisor, 1), **node.kwargs)  # integers trap
    return state.recomputed(node)


def view(node: fx.Node, state: Selections) -> Result:
    """Reshape: the axes before and after a selected one keep their number of elements."""
    x: Any = node.args[0]
    old, new = value_of(x).shape, value_of(node).shape
    before, after = state.axes(x), _axes(node, state)
    if [selection.number for selection in before.values()] != [selection.number for selection in after.values()]:
        return None
    for axis, reshaped in zip(before, after, strict=True):
        if sympy.expand(_product(old[:axis]) - _product(new[:reshaped])) != 0:
            return None
    return _with_shape(node, state)


def _with_shape(node: fx.Node, state: Selections) -> Result:
    """Recompute an operator whose arguments after the first are sizes, axes and the like."""
    return state.recomputed(node, state.whole(node.args[0]), *state.whole_shape(node.args[1:]), **node.kwargs)


def _product(sizes: Sequence[int | SymInt]) -> Any:
    return math.prod(map(expression_of, sizes))


def _axes(node: fx.Node, state: Selections) -> dict[int, Any]:
    """Return the selected axes of the result of ``node``."""
    joint: dict[Any, Any] = dict(state.joint(node) or {})
    symbols = map(expression_of, value_of(node).shape)
    return {axis: joint[symbol] for axis, symbol in enumerate(symbols) if symbol in joint}


def moved(node: fx.Node, state: Selections) -> Result:
    """Move or drop whole axes."""
    return state.recomputed(node)


def along(argument: int, default: int | None = 0) -> Callable[[fx.Node, Selections], Result]:
    """Return the rule of an operator that works along the axis, or axes, which is its positional ``argument``."""

    def rule(node: fx.Node, state: Selections) -> Result:
        operands = nodes_in(node.args[0])
        dims = node.args[argument] if len(node.args) > argument else node.kwargs.get("dim", default)
        if dims is None or dims == [] or not operands:
            return None
        rank = max(value_of(operand).dim() for operand in operands)
        listed = {dim % max(rank, 1) for dim in (dims if isinstance(dims, list | tuple) else [dims])}
        if any(listed & state.axes(operand).keys() for operand in operands):
            return None
        return state.recomputed(node) if _same_axes(state, operands) else None

    return rule


def _same_axes(state: Selections, operands: Sequence[fx.Node]) -> bool:
    """Return whether all ``operands`` have the same selected axes."""
    numbers = [{axis: selection.number for axis, selection in state.axes(operand).items()} for operand in operands]
    return all(number == numbers[0] for number in numbers)


def trailing(node: fx.Node, state: Selections) -> Result:
    """Normalize over trailing axes."""
    x, shape = node.args[:2]
    first = value_of(x).dim() - len(shape)  # type: ignore[arg-type]
    others = list(state.among(node.args[1:]))
    return None if others or any(axis >= first for axis in state.axes(x)) else state.recomputed(node)  # type: ignore[arg-type]


def batched(node: fx.Node, state: Selections) -> Result:
    """Compute each element of the first axis alone, as convolutions and poolings of images do."""
    x = node.args[0]
    others = any(state.among((node.args[1:], node.kwargs)))
    return None if others or state.axes(x).keys() != {0} else state.recomputed(node)  # type: ignore[arg-type]


def batch_norm(node: fx.Node, state: Selections) -> Result:
    """Normalize each image alone, by running statistics."""
    return None if arguments_of(node)["training"] else batched(node, state)


def pad(node: fx.Node, state: Selections) -> Result:
    """Pad the last axes, of which none is selected."""
    x, widths = node.args[:2]
    first = value_of(x).dim() - len(widths) // 2  # type: ignore[arg-type]
    others = any(state.among((node.args[1:], node.kwargs)))
    return None if others or any(axis >= first for axis in state.axes(x)) else state.recomputed(node)  # type: ignore[arg-type]


def attention(node: fx.Node, state: Selections) -> Result:
    """Attend within each element of batch axes alone."""
    arguments = arguments_of(node)
    operands = [arguments[name] for name in ("query", "key", "value", "attn_mask") if arguments[name] is not None]
    if arguments["dropout_p"] or any(
        state.axes(x).keys() & {value_of(x).dim() - 2, value_of(x).dim() - 1} for x in operands
    ):
        return None
    return state.recomputed(node) if aligned(node, state, operands) else None


def bucketize(node: fx.Node, state: Selections) -> Result:
    """Find each selected element among boundaries that are all there."""
    return None if any(state.among((node.args[1:], node.kwargs))) else state.recomputed(node)


def expand(node: fx.Node, state: Selections) -> Result:
    """Repeat axes of size 1, to selected ones too."""
    return _with_shape(node, state)


def repeat(node: fx.Node, state: Selections) -> Result:
    """Repeat other axes than selected ones."""
    x, times = node.args
    added = len(times) - value_of(x).dim()  # type: ignore[arg-type]
    return state.recomputed(node) if all(times[axis + added] == 1 for axis in state.axes(x)) else None  # type: ignore[arg-type, index]


def unless_training(node: fx.Node, state: Selections) -> Result:
    """Return the argument of ``dropout`` in inference."""
    return None if node.args[2] else state.recomputed(node)


def products(node: fx.Node, state: Selections) -> Result:
    """Multiply matrices: what is not selected along the axis that is summed is zero."""
    linear, added = node.target is aten.linear.default, node.target in (aten.addmm.default, aten.baddbmm.default)
    first = 1 if added else 0
    left, right = node.args[first], node.args[first + 1]
    last = value_of(left).dim() - 1
    summed = value_of(right).dim() - (1 if linear or value_of(right).dim() == 1 else 2)
    rest: Any = node.args[:first] + node.args[first + 2 :]
    if linear and any(state.among(rest)):
        return None
    if node.target in (aten.matmul.default, aten.bmm.default, aten.baddbmm.default):
        operands = [operand for operand in (left, right) if value_of(operand).dim() > 2]
        if len(operands) == 2 and not _same_batches(state, *operands):  # type: ignore[arg-type]
            return None
    a, b = state.filled(node, left, 0, [last]), state.filled(node, right, 0, [summed])
    args = (*state.whole(node.args[:first]), a, b, *state.whole(node.args[first + 2 :]))
    return state.recomputed(node, *args, **node.kwargs)


def _same_batches(state: Selections, left: fx.Node, right: fx.Node) -> bool:
    """Return whether the axes before the last two have the same selections, or size 1."""
    rank = max(value_of(left).dim(), value_of(right).dim())
    batches: list[dict[int, int]] = []
    for operand in (left, right):
        shift = rank - value_of(operand).dim()
        selected = state.axes(operand).items()
        batches.append({axis + shift: selection.number for axis, selection in selected if axis + shift < rank - 2})
    for axis in {*batches[0], *batches[1]}:
        for operand, batch in zip((left, right), batches, strict=True):
            own = axis - rank + value_of(operand).dim()
            size = value_of(operand).shape[own] if own >= 0 else 1
            if axis not in batch and expression_of(size) != 1:
                return False
    return all(batches[0][axis] == batches[1][axis] for axis in batches[0].keys() & batches[1].keys())


def factory(node: fx.Node, state: Selections) -> Result:
    """Fill a tensor of as many elements as are selected with one number."""
    position = 0 if isinstance(node.args[0], list | tuple) else 1
    args = list(state.whole(node.args))
    args[position] = state.whole_shape(args[position])
    return state.recomputed(node, *args, **node.kwargs)
