"""Operators of Core ATen, and operators in place, replaced by the operators with rules that they come from."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx
from torch._ops import OpOverload

from fx_importer.fx_graph.operators import aten, operator_named

_ARGUMENTS: dict[Any, tuple[Any, Callable[..., tuple[Any, ...]]]] = {
    aten.native_layer_norm.default: (aten.layer_norm.default, lambda x, *rest: (x, *rest)),
    aten.native_group_norm.default: (
        aten.group_norm.default,
        lambda x, weight, bias, _batch, _channels, _size, groups, eps: (x, groups, weight, bias, eps),
    ),
    aten.max_pool2d_with_indices.default: (aten.max_pool2d.default, lambda x, *windows: (x, *windows)),
}
"""By operator with several results: the operator that computes the first one, and its arguments."""


def without_core_forms(graph: fx.Graph) -> None:
    """Replace ``convolution``, and norms and pools with several results if only the first is used.

    `torch.export.ExportedProgram.run_decompositions` decomposes ``layer_norm``, ``conv1d`` and others to these.
    """
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is operator.getitem and node.args[1] == 0 and node.args[0].target in _ARGUMENTS:
            source = node.args[0]
            target, arguments = _ARGUMENTS[source.target]
            if not source.kwargs:
                node.target, node.args = target, arguments(*source.args)
                if not source.users:
                    graph.erase_node(source)
        elif node.target is aten.convolution.default and not node.kwargs:
            _convolution(node)


def _convolution(node: fx.Node) -> None:
    """Replace ``convolution`` by the operator of its rank."""
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = node.args
    value = x.meta.get("val") if isinstance(x, fx.Node) else None
    rank = value.dim() - 2 if isinstance(value, Tensor) else 0
    if transposed and rank == 2:
        node.target = aten.conv_transpose2d.input
        node.args = (x, weight, bias, stride, padding, output_padding, groups, dilation)
    elif not transposed and rank in (1, 2):
        node.target = aten.conv1d.default if rank == 1 else aten.conv2d.default
        node.args = (x, weight, bias, stride, padding, dilation, groups)


def without_writes(graph: fx.Graph) -> None:
    """Replace in-place operators by functional ones where nothing else reads the tensor."""
    for node in list(graph.nodes):
        if node.target in (aten.dropout.default, aten.dropout_.default) and not node.args[2]:  # no dead code to torch
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        source = node.args[0] if node.args else None
        name = str(node.target)
        if isinstance(node.target, OpOverload) and "_." in name and isinstance(source, fx.Node):
            pure = operator_named(name.replace("_.", "."))
            fresh = isinstance(source.target, OpOverload) and not any(
                each.alias_info for each in source.target._schema.returns
            )
            if fresh and len(source.users) == 1 and isinstance(pure, OpOverload):
                node.target = pure
