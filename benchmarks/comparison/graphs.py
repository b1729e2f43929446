"""Programs of any size, made from a small one: exporting 64 000 nodes would take longer than the measurement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, TensorArgument


class Elementwise(nn.Module):
    """Four operations on a small tensor."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return a tensor of the shape of both."""
        return torch.tanh(torch.sin(x) * y + x)


class Block(nn.Module):
    """A small block of a network with a residual: ten operations, with weights."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.gate, self.down = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``."""
        hidden = self.norm(x)
        hidden = nn.functional.gelu(self.up(hidden)) * torch.sigmoid(self.gate(hidden))
        return x + torch.softmax(self.down(hidden), -1) * 0.5


def chain(nodes: int) -> ExportedProgram:
    """Return a chain of about ``nodes`` elementwise operations."""
    return repeated(_exported(Elementwise(), torch.ones(16, 16), torch.ones(16, 16)), nodes)


def blocks(nodes: int) -> ExportedProgram:
    """Return a sequence of blocks with the same weights: about ``nodes`` operations."""
    torch.manual_seed(0)
    return repeated(_exported(Block(), torch.ones(4, 64)), nodes)


def repeated(program: ExportedProgram, nodes: int) -> ExportedProgram:
    """Return the program that feeds the only result of ``program`` back to its first input, until it has ``nodes``
    calls.
    """
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    placeholders = program.graph.find_nodes(op="placeholder")
    for node in placeholders:
        values[node] = graph.node_copy(node)
        values[node].name = node.name
    first = next(each for each in placeholders if each.name == next(iter(program.graph_signature.user_inputs)))
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    end = program.graph.output_node()
    results: Any = end.args[0]
    (returned,) = results
    for _ in range(max(nodes // len(calls), 1)):
        for node in calls:
            values[node] = graph.node_copy(node, values.__getitem__)
        values[first] = values[returned]
    graph.output((values[first],)).meta = dict(end.meta)
    signature = program.graph_signature
    (result,) = signature.output_specs
    result = replace(result, arg=TensorArgument(values[first].name))
    return ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=ExportGraphSignature(signature.input_specs, [result]),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _exported(model: nn.Module, *args: Tensor) -> ExportedProgram:
    return torch.export.export(model.eval(), args, strict=False)
