"""Operators of Core ATen, and functional writes, replaced by operators with rules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from fx_importer.fx_graph.emission import emit
from fx_importer.fx_graph.operators import aten

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

    `torch.export.ExportedProgram.run_decompositions` decomposes ``layer_norm``, ``conv1d`` and others to these. Writes
    to slices, ``slice_scatter`` and ``select_scatter``, become a ``cat`` of the parts.
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
        elif node.target in (aten.slice_scatter.default, aten.select_scatter.default):
            _scatter(node)


def _scatter(node: fx.Node) -> None:
    """Replace a write to a part of static size by ``cat`` of the part before it, the new values, and the part after."""
    x: Any = node.args[0]
    source: Any = node.args[1]
    arguments: list[Any] = list(node.args[2:])
    axis, *bounds = arguments or [0]
    shape = x.meta["val"].shape
    size = shape[axis]
    if node.kwargs or not isinstance(size, int) or not all(isinstance(bound, int | None) for bound in (axis, *bounds)):
        return
    select = node.target is aten.select_scatter.default
    first, last, step = slice(*bounds).indices(size) if not select else (bounds[0] % size, bounds[0] % size + 1, 1)
    if step != 1 or first >= last or x.meta["val"].dtype != source.meta["val"].dtype:
        return
    parts = [emit(node, aten.slice.Tensor, x, axis, 0, first)] if first else []
    parts.append(emit(node, aten.unsqueeze.default, source, axis) if select else source)
    parts += [emit(node, aten.slice.Tensor, x, axis, last, size)] if last < size else []
    node.replace_all_uses_with(emit(node, aten.cat.default, parts, axis))
    node.graph.erase_node(node)


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
