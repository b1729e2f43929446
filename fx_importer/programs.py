"""Exported programs as values: changing a graph makes a new program."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputSpec

Rewrite = Callable[[fx.Graph, fx.GraphModule], None]
"""Changes a graph. The module is what the graph's attributes are read from."""


def with_rewritten_graphs(program: ExportedProgram, rewrite: Rewrite) -> ExportedProgram:
    """Return a copy of ``program`` with ``rewrite`` applied to its graph, and to those of its higher-order operators.

    ``program`` is left alone. The copy shares the weights and what the nodes' metadata holds.
    """
    root = with_rewritten_modules(program.graph_module, rewrite)
    return ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=signature_of(program.graph_signature, root.graph),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def with_rewritten_modules(module: fx.GraphModule, rewrite: Rewrite) -> fx.GraphModule:
    """Return a copy of ``module`` with ``rewrite`` applied to its graph, and to those that its graph names."""
    graph = copy.deepcopy(module.graph)
    for node, original in zip(graph.nodes, module.graph.nodes, strict=True):
        node.name = original.name  # copying renames what export called `input`; the graph signature goes by names
    rewrite(graph, module)
    copied = fx.GraphModule(module, graph)
    copied.meta.update(module.meta)
    for node in graph.find_nodes(op="get_attr"):
        path, _, name = node.target.rpartition(".")
        if isinstance(child := getattr(holder := copied.get_submodule(path), name), fx.GraphModule):
            # The holder is new: a GraphModule copies what its graph names.
            setattr(holder, name, with_rewritten_modules(child, rewrite))
    return copied


def signature_of(signature: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
    """Return ``signature`` with the names of what ``graph`` returns now, and without the inputs that are gone."""
    results = graph.output_node().args[0]
    assert isinstance(results, list | tuple)
    specs = [
        dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=result.name))
        if isinstance(result, fx.Node) and not isinstance(spec.arg, ConstantArgument)
        else spec
        for spec, result in zip(signature.output_specs, results, strict=True)
    ]
    inputs = {node.name for node in graph.find_nodes(op="placeholder")}
    kept = [spec for spec in signature.input_specs if spec.arg.name in inputs]
    return ExportGraphSignature(input_specs=kept, output_specs=specs)


def held_value(program: ExportedProgram, spec: InputSpec) -> Any:
    """Return the parameter, the buffer, persistent or not, or the constant that ``spec``, of an input, stands for."""
    assert spec.target is not None
    held = program.state_dict.get(spec.target)
    return program.constants[spec.target] if held is None else held


def as_held(node: fx.Node, tensor: torch.Tensor) -> torch.Tensor:
    """Return what ``node`` stands for, of a tensor that the program holds.

    Where their dtypes differ, it is the same bits, or the two parts of complex numbers along a new last axis.
    """
    example = node.meta.get("val")
    if not isinstance(example, torch.Tensor) or example.dtype == tensor.dtype:
        return tensor
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(example.dtype)


def is_empty(value: object) -> bool:
    """Whether ``value``, an example of a node, is a dense tensor that is known to have no elements."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(isinstance(size, int) for size in value.shape) and 0 in value.shape
