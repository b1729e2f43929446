"""Operators along an axis of rank-0 tensors.

PyTorch accepts axis 0 (or -1) of a rank-0 tensor; the torch dialect's lowerings do not, and some crash.
"""

from __future__ import annotations

import operator

from torch import Tensor, fx
from torch.fx.node import map_arg

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.fx_pass import node_pass
from fx_importer.fx_passes.node_rewriting import NodeRewrites


def is_scalar(argument: object) -> bool:
    """Return whether a node is a rank-0 tensor."""
    value = value_of(argument)
    return isinstance(value, Tensor) and value.dim() == 0


def _through_rank_one(node: fx.Node) -> fx.Node | None:
    """Compute on a rank-1 tensor of one element, and squeeze the results."""
    if not is_scalar(node.args[0]):
        return None
    vectors = {
        operand: emit(node, aten.unsqueeze.default, operand, 0)
        for operand in node.all_input_nodes
        if is_scalar(operand)
    }
    args = map_arg(node.args, lambda item: vectors.get(item, item))
    kwargs = map_arg(node.kwargs, lambda item: vectors.get(item, item))
    result = emit(node, node.target, *args, **kwargs)  # type: ignore[arg-type]
    if isinstance(value_of(node), Tensor):
        return _with_rank(node, result, value_of(node).dim())
    for user in list(node.users):
        if user.target is not operator.getitem:
            return None
        part = emit(node, operator.getitem, result, user.args[1])
        user.replace_all_uses_with(_with_rank(node, part, value_of(user).dim()))
    return None


def _with_rank(before: fx.Node, node: fx.Node, rank: int) -> fx.Node:
    return emit(before, aten.squeeze.dim, node, 0) if value_of(node).dim() > rank else node


def _topk_through_rank_one(node: fx.Node) -> fx.Node | None:
    """Return the element for every ``k``: eager returns it for 0 too."""
    if is_scalar(node.args[0]):
        node.update_arg(1, 1)
    return _through_rank_one(node)


ALONG_AN_AXIS = (
    *(aten.all.dim, aten.any.dim, aten.amax.default, aten.amin.default, aten.aminmax.default),
    *(aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim, aten.argsort.default),
    *(aten.sum.dim_IntList, aten.mean.dim, aten.prod.dim_int, aten.logsumexp.default, aten.nansum.default),
    *(aten.cumsum.default, aten.cumprod.default, aten.cummax.default, aten.cummin.default, aten.logcumsumexp.default),
    *(aten.sort.default, aten.sort.stable, aten.topk.default, aten.kthvalue.default, aten.median.dim),
    *(aten._softmax.default, aten._log_softmax.default, aten.softmax.int, aten.log_softmax.int),
    *(aten.linalg_vector_norm.default, aten.norm.ScalarOpt_dim, aten.var.correction, aten.std.correction),
    *(aten.index_select.default, aten.gather.default, aten.scatter.src, aten.scatter.value, aten.scatter_add.default),
    *(aten.index_add.default, aten.index_copy.default),
    *(aten.flip.default, aten.roll.default),
)

_REWRITES: NodeRewrites = {
    **dict.fromkeys(ALONG_AN_AXIS, _through_rank_one),
    aten.topk.default: _topk_through_rank_one,
}


RANK_ZERO_TO_RANK_ONE = node_pass("rank-zero-to-rank-one", _REWRITES)
