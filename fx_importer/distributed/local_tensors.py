"""Programs of DTensors as programs of the tensors that a rank holds."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.programs import with_rewritten_graphs


def is_dtensor(value: object) -> bool:
    """Return whether ``value`` is a DTensor."""
    return hasattr(value, "placements") and hasattr(value, "device_mesh")


def local(value: Any) -> Any:
    """Return what this rank holds of a DTensor, and any other value as it is."""
    return value._local_tensor if is_dtensor(value) else value


def with_local_tensors(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program``, as torch.export gives it, in which each DTensor is this rank's part of it.

    A call with DTensors is replaced by what DTensor calls with the parts, traced once for each kind of call. torch's
    ``run_decompositions`` does the same by tracing the whole program twice. The process group of the mesh is needed.
    """
    traces: dict[Any, fx.Graph] = {}
    made = with_rewritten_graphs(program, lambda graph, owner: _rewrite(graph, owner, traces))
    tensors = {name: local(value) for name, value in program.state_dict.items()}
    made._state_dict = {
        name: torch.nn.Parameter(value, program.state_dict[name].requires_grad)
        if isinstance(program.state_dict[name], torch.nn.Parameter)
        else value
        for name, value in tensors.items()
    }
    made._constants = {name: local(value) for name, value in program.constants.items()}
    return made


def _rewrite(graph: fx.Graph, owner: fx.GraphModule, traces: dict[Any, fx.Graph]) -> None:
    values = {node: node.meta.get("val", getattr(owner, str(node.target), None)) for node in graph.nodes}
    parts: dict[fx.Node, Any] = {}
    for node in list(graph.nodes):
        used = (node, *node.all_input_nodes)
        if _is_call(node, owner) and any(is_dtensor(leaf) for of in used for leaf in pytree.tree_leaves(values[of])):
            parts[node] = _of_parts(node, values, parts, traces)
        elif isinstance(of_part := parts.get(node.args[0]) if node.target is operator.getitem else None, list | tuple):
            parts[node] = of_part[node.args[1]]
        else:
            node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda source: parts.get(source, source))
            if "val" in node.meta:
                node.meta["val"] = pytree.tree_map(local, values[node])
    for node in reversed(parts):
        graph.erase_node(node)
    graph.eliminate_dead_code()


def _is_call(node: fx.Node, owner: fx.GraphModule) -> bool:
    """Return whether ``node`` calls an operator without graphs, which are rewritten themselves."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and not any(
            operand.op == "get_attr" and isinstance(getattr(owner, str(operand.target), None), fx.GraphModule)
            for operand in node.all_input_nodes
        )
    )


def _of_parts(
    node: fx.Node, values: Mapping[fx.Node, Any], parts: Mapping[fx.Node, Any], traces: dict[Any, fx.Graph]
) -> Any:
    """Insert before ``node`` what it calls with the parts of DTensors, and return the nodes of its results."""
    inputs = [operand for operand in node.all_input_nodes if isinstance(values[operand], torch.Tensor)]
    known: dict[fx.Node, Any] = {operand: values[operand] for operand in node.all_input_nodes if operand not in inputs}
    places = {input_: _Place(at) for at, input_ in enumerate(inputs)}
    arguments = map_arg((node.args, node.kwargs), {**known, **places}.__getitem__)
    key = repr((node.target, arguments, [_kind(values[input_]) for input_ in inputs]))
    if key not in traces:

        def compute(*parts_passed: torch.Tensor) -> Any:
            whole = {
                input_: as_dtensor(part, values[input_]) for input_, part in zip(inputs, parts_passed, strict=True)
            }
            args, kwargs = map_arg((node.args, node.kwargs), {**known, **whole}.__getitem__)
            called: Any = node.target
            return pytree.tree_map(local, called(*args, **kwargs))

        examples = [local(values[argument]) for argument in inputs]
        mode = next(example.fake_mode for example in examples if isinstance(example, FakeTensor))
        with torch.no_grad(), mode:
            traces[key] = make_fx(compute)(*examples).graph
    placeholders = traces[key].find_nodes(op="placeholder")
    copies: dict[fx.Node, Any] = {
        placeholder: parts.get(input_, input_) for placeholder, input_ in zip(placeholders, inputs, strict=True)
    }
    before = set(copies.values())
    with node.graph.inserting_before(node):
        results = node.graph.graph_copy(traces[key], copies)
    for copy in set(copies.values()) - before:
        copy.meta |= {name: node.meta[name] for name in ("stack_trace", "nn_module_stack") if name in node.meta}
    return results


class _Place:
    """The place of a tensor among the inputs of a call."""

    def __init__(self, at: int):
        self._at = at

    def __repr__(self) -> str:
        return f"%{self._at}"


def _kind(value: Any) -> Any:
    """Return what a trace of a call with the tensor ``value`` depends on."""
    part = local(value)
    spec = (value._spec.placements, str(value.device_mesh), tuple(value.shape)) if is_dtensor(value) else None
    return part.dtype, tuple(part.shape), part.stride(), part.storage_offset(), part.device, spec


def as_dtensor(part: torch.Tensor, like: Any) -> torch.Tensor:
    """Return the DTensor like ``like`` whose local part is ``part``; ``part`` if that is none."""
    if not is_dtensor(like):
        return part
    from torch.distributed.tensor import DTensor

    return DTensor(part, like._spec, requires_grad=False)
