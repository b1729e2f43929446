"""Operators that move elements or take maxima: they commute with quantization."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.rule import Family, Scope
from fx_importer.quantization.scales import NoIntegerForm, Params

Integers = Callable[[Any], fx.Node]

_SAME = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.numpy_T.default,
    aten.mT.default,
    aten.swapaxes.default,
    aten.swapdims.default,
    aten.movedim.int,
    aten.movedim.intlist,
    aten.moveaxis.int,
    aten.moveaxis.intlist,
    aten.pixel_unshuffle.default,
    aten.rot90.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.narrow.default,
    aten.expand.default,
    aten.repeat.default,
    aten.flip.default,
    aten.alias.default,
    aten.detach.default,
    aten.index_select.default,
    aten.pixel_shuffle.default,
    aten.channel_shuffle.default,
    aten.embedding.default,
    aten.slice_copy.Tensor,  # ExecuTorch's quantizer writes views as copies
    aten.view_copy.default,
    aten.permute_copy.default,
    aten.transpose_copy.int,
    aten.unsqueeze_copy.default,
    aten.squeeze_copy.dims,
    aten.select_copy.int,
    aten.expand_copy.default,
    aten.roll.default,
    aten.gather.default,
    aten.tile.default,
    aten.repeat_interleave.self_int,
    aten.index.Tensor,
    aten.amax.default,
    aten.amin.default,
    aten.max.default,
    aten.min.default,
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
)
"""Called with integers in place of the first operand."""

LISTS = (aten.cat.default, aten.stack.default, aten.concat.default)
"""Called with a list of integers."""

_SPLITS = (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)

_EXTREMA = {aten.max.dim: aten.amax.default, aten.min.dim: aten.amin.default}
"""Operators that also return indices."""


def _on_integers(scope: Scope, node: fx.Node, integers: Integers, params: Params | None) -> fx.Node:
    """Call ``node`` on integers in place of its first operand."""
    keywords = {name: value for name, value in node.kwargs.items() if name != "memory_format"}
    is_view = node.target in (aten.view.default, aten.view_copy.default)  # strides may differ
    target = aten.reshape.default if is_view else node.target
    return scope.call(node, target, integers(node.args[0]), *node.args[1:], **keywords)


def _on_lists(scope: Scope, node: fx.Node, integers: Integers, params: Params | None) -> fx.Node:
    operands: Any = node.args[0]
    return scope.call(node, node.target, [integers(operand) for operand in operands], *node.args[1:], **node.kwargs)


def _item(scope: Scope, node: fx.Node, integers: Integers, params: Params | None) -> fx.Node:
    """Emit a part of a split, or the values of an operator that also returns indices."""
    source: Any = node.args[0]
    if source.target in _EXTREMA and node.args[1] == 0:
        axis, kept = [*source.args[1:], False][:2]
        return scope.call(node, _EXTREMA[source.target], integers(source.args[0]), [axis], kept)
    if source.target not in _SPLITS:
        raise NoIntegerForm(f"{source.target} has no integer form")
    parts = scope.call(node, source.target, integers(source.args[0]), *source.args[1:], **source.kwargs)
    return scope.call(node, operator.getitem, parts, node.args[1])


def _dropout(scope: Scope, node: fx.Node, integers: Integers, params: Params | None) -> fx.Node:
    if node.args[2]:
        raise NoIntegerForm("it drops elements at random")
    return integers(node.args[0])


def _identity(scope: Scope, node: fx.Node, integers: Integers, params: Params | None) -> fx.Node:
    return integers(node.args[0])


def _pad(scope: Scope, node: fx.Node, integers: Integers, params: Params | None) -> fx.Node:
    if (value := _pad_value(node)) is None:
        return _on_integers(scope, node, integers, params)
    x = integers(node.args[0])
    level = _level(value, scope.quantized(node.args[0])[1]) if params is None else params.quantized(value)
    return scope.call(node, aten.constant_pad_nd.default, x, node.args[1], level)


def _pad_value(node: fx.Node) -> float | None:
    """Return the value that a pad inserts; None for one that repeats elements."""
    rest: list[Any] = list(node.args[2:])
    if node.target is aten.pad.default and (rest.pop(0) if rest else node.kwargs.get("mode", "constant")) != "constant":
        return None
    value = rest[0] if rest else node.kwargs.get("value")
    return float(value or 0)  # type: ignore[arg-type]


def _level(value: float, params: Params) -> int:
    """Return the integer of ``value``. Raises `NoIntegerForm` if it has none."""
    level = params.quantized(value)
    if (level - params.zero_point) * params.scale != value:
        raise NoIntegerForm(f"it pads with {value}, which is not a level of its scale")
    return level


FAMILY = Family(
    moves={
        **dict.fromkeys(_SAME, _on_integers),
        **dict.fromkeys(LISTS, _on_lists),
        **dict.fromkeys((aten.clone.default, aten.contiguous.default), _identity),
        **dict.fromkeys((aten.dropout.default, aten.dropout_.default), _dropout),
        **dict.fromkeys((aten.constant_pad_nd.default, aten.pad.default), _pad),
        operator.getitem: _item,
    }
)
