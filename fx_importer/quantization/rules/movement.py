"""Operators that move elements or take maxima: they commute with quantization."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.operators.int8 import integer
from fx_importer.quantization.rules.resizes import NEAREST, nearest_places
from fx_importer.quantization.rules.scope import Scope
from fx_importer.quantization.rules.windows import pool_windows
from fx_importer.quantization.scales import NoIntegerForm, Params

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
    aten.clone.default,
    aten.contiguous.default,
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
_IDENTITIES = (aten.dropout.default, aten.dropout_.default)
_PADS = (aten.constant_pad_nd.default, aten.pad.default)
_POOLS = (aten.max_pool2d.default,)
_SPLITS = (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int)

_EXTREMA = {aten.max.dim: aten.amax.default, aten.min.dim: aten.amin.default}
"""Operators that also return indices."""

MOVEMENT = frozenset((*_SAME, *LISTS, *_IDENTITIES, *_PADS, *_POOLS, *NEAREST, operator.getitem))


def move(scope: Scope, node: fx.Node, integers: Callable[[Any], fx.Node], params: Params | None) -> fx.Node:
    """Emit ``node`` on ``integers`` of its operands, which are quantized with ``params`` if these are known.

    Raises:
        NoIntegerForm: for a pad of a value that is no level, and what ``integers`` raises.
    """
    first: Any = node.args[0]
    if node.target in LISTS:
        return scope.call(node, node.target, [integers(each) for each in first], *node.args[1:], **node.kwargs)
    if node.target is operator.getitem:
        if first.target in _EXTREMA and node.args[1] == 0:
            axis, kept = [*first.args[1:], False][:2]
            return scope.call(node, _EXTREMA[first.target], integers(first.args[0]), [axis], kept)
        if first.target not in _SPLITS:
            raise NoIntegerForm(f"{first.target} has no integer form")
        parts = scope.call(node, first.target, integers(first.args[0]), *first.args[1:], **first.kwargs)
        return scope.call(node, operator.getitem, parts, node.args[1])
    if node.target in _IDENTITIES:
        if node.args[2]:
            raise NoIntegerForm("it drops elements at random")
        return integers(first)
    if node.target in NEAREST:
        return scope.call(node, integer.resize_nearest.default, integers(first), *nearest_places(node))
    if node.target in _PADS and (value := _pad_value(node)) is not None:
        x = integers(first)
        level = _level(value, scope.quantized(first)[1]) if params is None else params.quantized(value)
        return scope.call(node, aten.constant_pad_nd.default, x, node.args[1], level)
    if node.target in _POOLS:
        windows = pool_windows(node)
        return scope.call(node, integer.max_pool2d.default, integers(first), *windows)
    keywords = {name: each for name, each in node.kwargs.items() if name != "memory_format"}
    if node.target in (aten.clone.default, aten.contiguous.default):
        return integers(first)
    target = (
        aten.reshape.default if node.target in (aten.view.default, aten.view_copy.default) else node.target
    )  # strides may differ
    return scope.call(node, target, integers(first), *node.args[1:], **keywords)


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
        raise NoIntegerForm(f"it pads with {value}, which is no level of its scale")
    return level
