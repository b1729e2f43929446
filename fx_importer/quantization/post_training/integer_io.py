"""Quantized programs whose inputs and results are integers."""

from __future__ import annotations

from collections.abc import Sequence
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
        params = _params(node) if kind_of(node) in ("dequantize", "quantize") else None
        if params is not None and kind_of(node) == "quantize":  # an integer already
            results.append((params.scale, params.zero_point))
            return node
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


def channels_last_inputs(module: fx.GraphModule, inputs: Sequence[bool]) -> None:
    """Let the ``inputs`` of ``module`` that are true, images, have channels last: NHWC where they were NCHW."""
    for node, is_image in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if not is_image:
            continue
        users = list(node.users)
        with module.graph.inserting_after(node):
            permuted = module.graph.call_function(torch.ops.aten.permute.default, (node, [0, 3, 1, 2]))
        for user in users:
            user.replace_input_with(node, permuted)
        if isinstance(value := node.meta.get("val"), torch.Tensor):
            permuted.meta["val"], node.meta["val"] = value, value.permute(0, 2, 3, 1)
    module.recompile()


def _taken(placeholder: fx.Node) -> tuple[Scale, torch.dtype | None] | None:
    """Let an input be integer if nothing but one quantize operator reads it.

    Returns the scale, and the dtype to convert to: None if the input is an integer of that scale already.
    """
    users = list(placeholder.users)
    if users and all(kind_of(user) == "dequantize" for user in users):
        scales = {params and (params.scale, params.zero_point) for params in map(_params, users)}
        return (scale, None) if len(scales) == 1 and (scale := scales.pop()) is not None else None
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
