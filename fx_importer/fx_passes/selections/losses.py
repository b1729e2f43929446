"""Losses of selected elements: the others add nothing."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

from torch import fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.selections.reads import Result, aligned
from fx_importer.fx_passes.selections.reductions import accumulated, in_dtype_of
from fx_importer.fx_passes.selections.selected import Selections, nodes_in

_MEAN, _SUM = 1, 2
"""Values of the argument ``reduction``."""


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Return all arguments of ``node`` by name, in order."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    names = [argument.name for argument in schema]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return {argument.name: given.get(argument.name, argument.default_value) for argument in schema}


def _called(node: fx.Node, arguments: dict[str, Any]) -> fx.Node:
    """Emit a call of the operator of ``node`` with all arguments, by name."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    keywords = {argument.name: arguments[argument.name] for argument in schema if argument.kwarg_only}
    return emit(node, node.target, *(arguments[a.name] for a in schema if not a.kwarg_only), **keywords)  # type: ignore[arg-type]


def loss(node: fx.Node, state: Selections) -> Result:
    """Reduce the losses of selected pairs of elements."""
    operands, arguments = nodes_in((node.args, node.kwargs)), _arguments(node)
    kind = arguments["reduction"]
    if not aligned(node, state, operands):
        return None
    if kind not in (_MEAN, _SUM):
        return state.recomputed(node)
    losses = _called(node, state.whole({**arguments, "reduction": 0}))
    rank = value_of(losses).dim()
    axes = {rank - value_of(x).dim() + axis: s for x in operands for axis, s in state.axes(x).items()}
    sizes = [size for axis, size in enumerate(value_of(losses).shape) if axis not in axes]
    if not all(isinstance(size, int) for size in sizes):
        return None
    total = losses
    for axis, selection in axes.items():
        zero = emit(node, aten.full.default, [], 0, dtype=value_of(losses).dtype)
        total = emit(node, aten.where.self, selection.valid(node, axis, rank), total, zero)
    if kind == _SUM:
        return state.with_whole(node, emit(node, aten.sum.default, total))
    total = emit(node, aten.sum.default, total, dtype=accumulated(value_of(node).dtype))
    for selection in axes.values():
        total = emit(node, aten.div.Tensor, total, selection.count(node))
    return in_dtype_of(node, emit(node, aten.div.Tensor, total, reduce(operator.mul, sizes, 1)), state)


def cross_entropy(node: fx.Node, state: Selections) -> Result:
    """Ignore the targets that are not selected."""
    arguments = _arguments(node)
    x, target = arguments["self"], arguments["target"]
    selections = [{axis: selection.number for axis, selection in state.axes(each).items()} for each in (x, target)]
    if value_of(target).is_floating_point() or selections[0] != selections[1] or [*selections[0]] != [0]:
        return None
    if value_of(x).dim() < 2 or any(state.among((arguments["weight"],))):
        return None
    ignored = state.filled(node, target, arguments["ignore_index"])
    return state.with_whole(node, _called(node, {**arguments, "self": state.whole(x), "target": ignored}))


LOSSES = {
    **dict.fromkeys((aten.mse_loss.default, aten.l1_loss.default, aten.smooth_l1_loss.default), loss),
    **dict.fromkeys((aten.huber_loss.default, aten.binary_cross_entropy.default, aten.soft_margin_loss.default), loss),
    **dict.fromkeys((aten.binary_cross_entropy_with_logits.default, aten.kl_div.default), loss),
    **dict.fromkeys((aten.cross_entropy_loss.default, aten.nll_loss_nd.default, aten.nll_loss.default), cross_entropy),
}
