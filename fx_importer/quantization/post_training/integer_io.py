"""Quantized programs whose inputs and results are integers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from fx_importer.quantization.qdq import kind_of, params_of
from fx_importer.quantization.scales import Params

Scale = tuple[float, int] | None
"""Scale and zero point; None for values in floating point."""


def _changed(graph: fx.Graph) -> dict[str, list[Any]]:
    """Let quantized inputs and results of ``graph`` be int8. Return their scales and zero points, by position."""
    taken = [_taken(each) for each in graph.find_nodes(op="placeholder")]
    inputs, dtypes = [each and each[0] for each in taken], [each and each[1] for each in taken]
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
    return {"input_scales": inputs, "input_dtypes": dtypes, "result_scales": results}


def integers_outside(module: fx.GraphModule) -> fx.GraphModule:
    """Let quantized inputs and results of ``module`` be int8; its ``meta`` has their scales and zero points.

    ``meta["input_dtypes"]`` has the dtypes of inputs.
    """
    module.meta |= _changed(module.graph)
    module.recompile()
    return module


def _taken(placeholder: fx.Node) -> tuple[Scale, torch.dtype] | None:
    """Let an input be integer if nothing but one quantize operator reads it."""
    users = list(placeholder.users)
    if len(users) != 1 or kind_of(users[0]) != "quantize" or (params := _params(users[0])) is None:
        return None
    placeholder.meta["val"] = users[0].meta.get("val")
    dtype: Any = users[0].args[5]
    users[0].replace_all_uses_with(placeholder)
    users[0].graph.erase_node(users[0])
    return (params.scale, params.zero_point), dtype


def _params(node: fx.Node) -> Params | None:
    def unknown(_: Any) -> None:
        return None

    return params_of(node, unknown)
