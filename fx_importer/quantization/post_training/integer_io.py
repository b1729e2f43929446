"""Quantized programs whose inputs and results are integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import map_arg

from fx_importer.errors import UsageError
from fx_importer.quantization.families import MOVES
from fx_importer.quantization.qdq import is_quantized, is_unsigned, kind_of, params_of

Scale = tuple[float, int] | None
"""Scale and zero point; None for values in floating point."""


def outer_scales(program: ExportedProgram) -> tuple[dict[int, tuple[float, int]], dict[int, tuple[float, int]]]:
    """Return scales and zero points of the inputs and of the outputs of ``program`` that are integers, by leaf."""
    if not is_quantized(program.graph):
        return {}, {}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    returned: Any = program.graph.output_node().args[0]
    kinds = zip(program.graph_signature.output_specs, returned, strict=True)
    outputs = [value for spec, value in kinds if spec.kind is OutputKind.USER_OUTPUT]
    try:
        read = [_read_scale(nodes[name]) if name in nodes else None for name in inputs]
        written = [_written_scale(value) if isinstance(value, fx.Node) else None for value in outputs]
    except UsageError:  # a scale is zero or no number: the program is computed in floating point, with a remark
        return {}, {}
    (taken_scales, made) = (
        {leaf: scale for leaf, scale in enumerate(scales) if scale is not None} for scales in (read, written)
    )
    return taken_scales, made


def _read_scale(node: fx.Node) -> Scale:
    """Return the one scale by which all that reads ``node``, after moves of its elements, dequantizes it."""
    scales = {
        _scale(user) if kind_of(user) == "dequantize" else _moved(user) and _read_scale(user) for user in node.users
    }
    return scales.pop() if len(scales) == 1 else None


def _written_scale(node: fx.Node) -> Scale:
    """Return the scale by which ``node``, before moves of its elements, was quantized."""
    while (source := _moved(node)) is not None:
        node = source
    return _scale(node) if kind_of(node) == "quantize" else None


def _moved(node: fx.Node) -> fx.Node | None:
    """Return the tensor of which ``node`` moves elements, if it does nothing else."""
    return node.all_input_nodes[0] if node.target in MOVES and len(node.all_input_nodes) == 1 else None


def _changed(graph: fx.Graph) -> dict[str, list[Any]]:
    """Let quantized inputs and results of ``graph`` be int8. Return their scales and zero points, by position."""
    params = [_taken(node) for node in graph.find_nodes(op="placeholder")]
    inputs, dtypes = [pair and pair[0] for pair in params], [pair and pair[1] for pair in params]
    (output,) = graph.find_nodes(op="output")
    results: list[Scale] = []

    def returned(node: fx.Node) -> fx.Node:
        scale, source = _scale(node), node.args[0] if node.args else None
        results.append(scale if isinstance(source, fx.Node) else None)
        if scale is None or not isinstance(source, fx.Node) or kind_of(node) == "quantize":  # an integer already
            return node
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
        return (scale, None) if (scale := _read_scale(placeholder)) is not None else None
    if len(users) != 1 or kind_of(users[0]) != "quantize" or (scale := _scale(users[0])) is None:
        return None
    placeholder.meta["val"] = users[0].meta.get("val")
    dtype: Any = users[0].args[5]
    users[0].replace_all_uses_with(placeholder)
    users[0].graph.erase_node(users[0])
    return scale, dtype


def _scale(node: fx.Node) -> Scale:
    """Return scale and zero point of Q/DQ per tensor, where they are numbers; None for other nodes."""

    def unknown(_: Any) -> None:
        return None

    params = params_of(node, unknown)
    return None if params is None else (params.scale, params.zero_point + 128 * is_unsigned(node))
