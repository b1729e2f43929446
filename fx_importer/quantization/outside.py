"""Quantized programs whose inputs and results are integers."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.fx.node import map_arg

from fx_importer.quantization.qdq import kind_of, params_of
from fx_importer.quantization.scales import Params

Scale = tuple[float, int] | None
"""Scale and zero point; None for what is not quantized."""


def _changed(graph: fx.Graph) -> dict[str, list[Scale]]:
    """Let quantized inputs and results of ``graph`` be int8. Return their scales and zero points, by position."""
    inputs = [_taken(each) for each in graph.find_nodes(op="placeholder")]
    (output,) = graph.find_nodes(op="output")
    results: list[Scale] = []

    def returned(node: fx.Node) -> fx.Node:
        params = _params(node) if kind_of(node) == "dequantize" else None
        source = node.args[0]
        if params is None or not isinstance(source, fx.Node):
            results.append(None)
            return node
        results.append((params.scale, params.zero_point))
        return source

    output.args = map_arg(output.args, returned)
    graph.eliminate_dead_code()
    return {"input_scales": inputs, "result_scales": results}


def integers_outside(module: fx.GraphModule) -> fx.GraphModule:
    """Let quantized inputs and results of ``module`` be int8; its ``meta`` has their scales and zero points."""
    module.meta |= _changed(module.graph)
    module.recompile()
    return module


def _taken(placeholder: fx.Node) -> Scale:
    """Let an input be int8 if nothing but one quantize operator reads it."""
    users = list(placeholder.users)
    if len(users) != 1 or kind_of(users[0]) != "quantize" or (params := _params(users[0])) is None:
        return None
    placeholder.meta["val"] = users[0].meta.get("val")
    users[0].replace_all_uses_with(placeholder)
    users[0].graph.erase_node(users[0])
    return params.scale, params.zero_point


def _params(node: fx.Node) -> Params | None:
    def unknown(_: Any) -> None:
        return None

    return params_of(node, unknown)
