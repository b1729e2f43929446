"""Decomposition of ``flex_attention`` to the full matrix of scores, modified and masked.

The operator has two functions as graphs on single scores, which ``vmap`` turns into graphs on the matrix. It is
decomposed before all other operators, so that the operators of these graphs are decomposed like the others.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from fx_importer.decompositions.engine.dce import eliminate_dead_code
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs

FLEX_ATTENTION = torch.ops.higher_order.flex_attention


def decompose_flex_attention(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program``, sharing its weights, with ``flex_attention`` decomposed."""
    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    if not any(module.graph.find_nodes(op="call_function", target=FLEX_ATTENTION) for module in modules):
        return program
    return with_rewritten_graphs(program, _decompose_graph)


def _decompose_graph(graph: fx.Graph, owner: fx.GraphModule) -> None:
    calls = graph.find_nodes(op="call_function", target=FLEX_ATTENTION)
    for node in calls:
        _decompose_node(node, owner)
    if calls:
        eliminate_dead_code(graph)  # the code that made its mask, which torch cannot trace again inside a branch


def _decompose_node(node: fx.Node, owner: fx.GraphModule) -> None:
    inputs = [operand for operand in node.all_input_nodes if operand.op != "get_attr" or "val" in operand.meta]

    def compute(*values: Any) -> tuple[Tensor, ...]:
        known = dict(zip(inputs, values, strict=True))

        def value_of(source: fx.Node) -> Any:
            return known[source] if source in known else owner.get_submodule(str(source.target))

        return flex_attention(*map_arg(node.args, value_of), **map_arg(node.kwargs, value_of))  # type: ignore[arg-type]

    examples = [operand.meta["val"] for operand in inputs]
    with torch.no_grad(), next(example.fake_mode for example in examples if isinstance(example, FakeTensor)):
        traced = make_fx(compute)(*examples)
    for inner in traced.graph.nodes:
        inner.meta["stack_trace"] = node.meta.get("stack_trace")
        if inner.target is aten._to_copy.default and isinstance(inner.args[0], int | float):
            # vmap emits _to_copy of Python numbers, which fails when the graph is traced again.
            inner.target, inner.args, inner.kwargs = (
                aten.full.default,
                ([], inner.args[0]),
                {"dtype": inner.kwargs["dtype"]},
            )
    placeholders = traced.graph.find_nodes(op="placeholder")
    with node.graph.inserting_before(node):
        results: Any = node.graph.graph_copy(traced.graph, dict(zip(placeholders, inputs, strict=True)))
    for user in list(node.users):
        assert user.target is operator.getitem
        index: Any = user.args[1]
        user.replace_all_uses_with(results[index])
        node.graph.erase_node(user)
    node.graph.erase_node(node)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attention, each row's logsumexp to base 2, and each row's maximum, divided by log(2).

    ``query`` is [batch, heads, rows, size]; ``key`` and ``value`` may have one batch for all, and fewer heads, each for
    a group of the query's. ``score_mod(score, b, h, row, column)`` changes a score; the last item of
    ``block_mask`` is the function that masks it. The rest of the mask, and the options, are hints for kernels. Scores
    of low precision are computed in float32, as in eager. A fully masked row is zero.
    """
    del kernel_options
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    batch, heads = query.shape[:2]
    key, value = (_broadcast_heads(tensor, batch, heads) for tensor in (key, value))
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    indices = [torch.arange(size) for size in scores.shape]
    counts = _vmap_over_scores(block_mask[-1], (), len(mask_mod_other_buffers))(*indices, *mask_mod_other_buffers)
    modified = _vmap_over_scores(score_mod, (0,), len(score_mod_other_buffers))(
        scores, *indices, *score_mod_other_buffers
    )
    modified = torch.where(counts, modified.to(wide), -math.inf)
    greatest = modified.amax(-1, keepdim=True)
    empty = greatest == -math.inf
    finite = torch.where(empty, 0.0, greatest)
    exponentials = torch.exp(modified - finite)
    total = exponentials.sum(-1, keepdim=True)
    weights = (exponentials / torch.where(empty, 1.0, total)).to(query.dtype)
    logarithm = torch.log(total) + finite  # minus infinity for an empty row
    return weights @ value.to(query.dtype), logarithm.squeeze(-1) / math.log(2), greatest.squeeze(-1) / math.log(2)


def _broadcast_heads(tensor: Tensor, batch: int, heads: int) -> Tensor:
    """Return ``tensor`` with this batch size and number of heads, each repeated for its group."""
    ours, rows, size = tensor.shape[1:]
    repeated = tensor.unsqueeze(2).expand(batch, ours, heads // ours, rows, size)
    return repeated.reshape(batch, heads, rows, size)


def _vmap_over_scores(function: Callable[..., Tensor], scores: tuple[int, ...], captured: int) -> Callable[..., Tensor]:
    """Return ``function`` of vectors of indices (b, h, row, column), batched over all four, the column innermost."""
    for axis in reversed(range(4)):
        indices = tuple(0 if dim == axis else None for dim in range(4))
        function = torch.vmap(function, in_dims=(*scores, *indices, *(None,) * captured))
    return function
