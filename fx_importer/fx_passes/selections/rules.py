"""The rules of operators on selected elements, by operator."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.selections import elementwise, reads, writes
from fx_importer.fx_passes.selections.losses import LOSSES
from fx_importer.fx_passes.selections.reads import Result
from fx_importer.fx_passes.selections.reductions import REDUCTIONS
from fx_importer.fx_passes.selections.selected import Selections

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
_ALONG_AXIS_1 = (
    *(aten.flip.default, aten.max.dim, aten.min.dim, aten.cat.default),
    *(aten.select.int, aten.slice.Tensor, aten.narrow.default, aten.unbind.int),
)
_ALONG_AXIS_2 = (
    *(
        aten.repeat_interleave.self_int,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.chunk.default,
    ),
)
_PRODUCTS = (
    *(aten.mm.default, aten.bmm.default, aten.matmul.default, aten.linear.default, aten.addmm.default),
    *(aten.baddbmm.default, aten.mv.default, aten.dot.default),
)
_OF_IMAGES = (
    *(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.convolution.default),
    *(aten.max_pool2d.default, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default, aten.group_norm.default),
)
_FACTORIES = (
    *(aten.full.default, aten.zeros.default, aten.ones.default),
    *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
)

MOVES = frozenset((*_VIEWS, operator.getitem, aten.select.int))
"""Operators whose results consist of elements of their operand."""

RULES: dict[Any, Rule] = {
    **REDUCTIONS,
    **LOSSES,
    **dict.fromkeys(_VIEWS, elementwise.view),
    aten.expand.default: elementwise.expand,
    **dict.fromkeys(_MOVES, elementwise.moved),
    **dict.fromkeys(_ALONG_AXIS_1, elementwise.along(1)),
    **dict.fromkeys(_ALONG_AXIS_2, elementwise.along(2)),
    aten.topk.default: elementwise.along(2, -1),
    aten.roll.default: elementwise.along(2, None),
    aten.sort.default: elementwise.along(1, -1),
    aten.glu.default: elementwise.along(1, -1),
    **dict.fromkeys((aten.argmax.default, aten.argmin.default), elementwise.along(1, None)),
    **dict.fromkeys(_PRODUCTS, elementwise.products),
    **dict.fromkeys(_OF_IMAGES, elementwise.batched),
    **dict.fromkeys(
        (aten.layer_norm.default, aten.rms_norm.default, aten.native_layer_norm.default), elementwise.trailing
    ),
    **dict.fromkeys(_FACTORIES, elementwise.factory),
    aten.bucketize.Tensor: elementwise.bucketize,
    aten.repeat.default: elementwise.repeat,
    aten.dropout.default: elementwise.unless_training,
    aten.index.Tensor: reads.index,
    aten.gather.default: reads.gather,
    aten.index_select.default: reads.index_select,
    aten.embedding.default: reads.embedding,
    aten.index_put.default: writes.index_put,
    **dict.fromkeys((aten.scatter.src, aten.scatter.value, aten.scatter_reduce.two), writes.scatter),
    aten.index_copy.default: writes.index_copy,
    aten.masked_scatter.default: writes.masked_scatter,
    **dict.fromkeys((aten.index_add.default, aten.scatter_add.default), writes.add_slices),
}
"""Operators on selected elements, other than pointwise ones."""
