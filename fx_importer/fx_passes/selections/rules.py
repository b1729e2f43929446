"""The rules of operators on selected elements, by operator; losses of them, to which other elements add nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from torch import fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.node_rewriting import arguments_of
from fx_importer.fx_passes.selections import elementwise, ordered, reads, writes
from fx_importer.fx_passes.selections.reads import Result, aligned
from fx_importer.fx_passes.selections.reductions import REDUCTIONS, accumulated, in_dtype_of
from fx_importer.fx_passes.selections.selected import Selections, nodes_in

_MEAN, _SUM = 1, 2
"""Values of the argument ``reduction``."""


def _called(node: fx.Node, arguments: dict[str, Any]) -> fx.Node:
    """Emit a call of the operator of ``node`` with all arguments, by name."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    keywords = {argument.name: arguments[argument.name] for argument in schema if argument.kwarg_only}
    return emit(node, node.target, *(arguments[a.name] for a in schema if not a.kwarg_only), **keywords)  # type: ignore[arg-type]


def loss(node: fx.Node, state: Selections) -> Result:
    """Reduce the losses of selected pairs of elements."""
    operands, arguments = nodes_in((node.args, node.kwargs)), arguments_of(node)
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
    arguments = arguments_of(node)
    x, target = arguments["self"], arguments["target"]
    selections = [
        {axis: selection.number for axis, selection in state.axes(operand).items()} for operand in (x, target)
    ]
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


Rule = Callable[[fx.Node, Selections], Result]

SOURCES: dict[Any, Rule] = {
    aten.index.Tensor: reads.index,
    aten.masked_select.default: reads.masked_select,
    **dict.fromkeys((aten.nonzero.default, aten.where.default, aten.argwhere.default), reads.nonzero),
}
"""Operators that select elements."""

_VIEWS = (
    *(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints),
    *(aten.unflatten.int, aten.view_copy.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
    aten.unsqueeze.default,
)
_MOVES = (
    *(aten.permute.default, aten.transpose.int, aten.t.default, aten.numpy_T.default, aten.mT.default),
    *(aten.movedim.int, aten.movedim.intlist, operator.getitem),
)
_ALONG_AXIS_2 = (
    *(
        aten.repeat_interleave.self_int,
        aten.split.Tensor,
        aten.chunk.default,
    ),
)
_PRODUCTS = (
    *(aten.mm.default, aten.bmm.default, aten.matmul.default, aten.linear.default, aten.addmm.default),
    *(aten.baddbmm.default, aten.mv.default, aten.dot.default),
)
_OF_IMAGES = (
    *(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.convolution.default),
    *(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding),
    *(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input),
    *(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default),
    *(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default),
    *(aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default),
    *(aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec, aten.upsample_bicubic2d.vec),
    *(aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.group_norm.default),
)
_FACTORIES = (
    *(aten.full.default, aten.zeros.default, aten.ones.default),
    *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
)


def _either(first: Rule, second: Rule) -> Rule:
    def rule(node: fx.Node, state: Selections) -> Result:
        result = first(node, state)
        return second(node, state) if result is None else result

    return rule


MOVES = frozenset((*_VIEWS, operator.getitem, aten.select.int))
"""Operators whose results consist of elements of their operand."""

RULES: dict[Any, Rule] = {
    **REDUCTIONS,
    **LOSSES,
    **dict.fromkeys(_VIEWS, elementwise.view),
    aten.expand.default: elementwise.expand,
    **dict.fromkeys(_MOVES, elementwise.moved),
    aten.unbind.int: elementwise.along(1),
    **dict.fromkeys(_ALONG_AXIS_2, elementwise.along(2)),
    **dict.fromkeys((aten.topk.default, aten.kthvalue.default), ordered.ranked),
    **dict.fromkeys((aten.median.default, aten.nanmedian.default), ordered.median),
    aten.roll.default: elementwise.along(2, None),
    **dict.fromkeys((aten.sort.default, aten.sort.stable, aten.argsort.default, aten.argsort.stable), ordered.sort),
    aten.flip.default: ordered.flip,
    aten.slice.Tensor: ordered.slice_,
    **dict.fromkeys((aten.select.int, aten.narrow.default), ordered.consecutive),
    aten.cat.default: ordered.cat,
    aten.pad_sequence.default: ordered.pad_sequence,
    aten.glu.default: elementwise.along(1, -1),
    **dict.fromkeys(_PRODUCTS, elementwise.products),
    **dict.fromkeys(_OF_IMAGES, elementwise.batched),
    aten.batch_norm.default: elementwise.batch_norm,
    aten.unfold.default: elementwise.along(1),
    **dict.fromkeys((aten.pad.default, aten.constant_pad_nd.default), elementwise.pad),
    aten.scaled_dot_product_attention.default: elementwise.attention,
    **dict.fromkeys(
        (aten.layer_norm.default, aten.rms_norm.default, aten.native_layer_norm.default), elementwise.trailing
    ),
    **dict.fromkeys(_FACTORIES, elementwise.factory),
    **dict.fromkeys((aten.arange.default, aten.arange.start, aten.arange.start_step), ordered.arange),
    aten.split_with_sizes.default: ordered.split,
    aten.bucketize.Tensor: elementwise.bucketize,
    aten.repeat.default: elementwise.repeat,
    aten.dropout.default: elementwise.unless_training,
    aten.index.Tensor: _either(ordered.index, reads.index),
    aten.gather.default: reads.gather,
    aten.index_select.default: _either(ordered.index, reads.index_select),
    aten.embedding.default: reads.embedding,
    aten.index_put.default: writes.index_put,
    **dict.fromkeys((aten.scatter.src, aten.scatter.value, aten.scatter_reduce.two), writes.scatter),
    aten.index_copy.default: writes.index_copy,
    **dict.fromkeys((aten.index_fill.int_Scalar, aten.index_fill.int_Tensor), writes.index_fill),
    aten.masked_scatter.default: writes.masked_scatter,
    **dict.fromkeys((aten.index_add.default, aten.scatter_add.default), writes.add_slices),
}
"""Operators on selected elements, other than pointwise ones."""
