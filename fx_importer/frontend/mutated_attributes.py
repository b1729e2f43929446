"""Mutated tensor attributes of modules that are not registered buffers: they become state.

An example is a cache that a library keeps in an object. torch.export lifts it as a constant, even if it is the same
tensor as a buffer, and torch's passes then reject the mutation.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_importer.fx_graph.aliasing import mutated_placeholders
from fx_importer.fx_graph.programs import storage_view_key, with_rewritten_graphs


def attributes_as_buffers(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with each mutated constant replaced by the buffer that is the same tensor, or else made a
    non-persistent buffer. The given program is not changed."""
    written = {name for name, _ in mutated_placeholders(program.graph)}
    constants = [
        spec
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.arg.name in written
    ]
    if not constants:
        return program
    buffers = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.BUFFER]
    same = {
        constant.arg.name: buffer.arg.name
        for constant in constants
        for buffer in buffers
        if _same_view(_tensor(program, constant.target), _tensor(program, buffer.target))
    }

    def merge(graph: fx.Graph, _owner: fx.GraphModule) -> None:
        nodes = {node.name: node for node in graph.find_nodes(op="placeholder")}
        for constant, buffer in same.items():
            if constant in nodes and buffer in nodes:  # not in subgraphs
                nodes[constant].replace_all_uses_with(nodes[buffer])
                graph.erase_node(nodes[constant])

    program = with_rewritten_graphs(program, merge)
    own = {spec.arg.name for spec in constants} - same.keys()
    program.graph_signature.input_specs = [
        replace(spec, kind=InputKind.BUFFER, persistent=False) if spec.arg.name in own else spec
        for spec in program.graph_signature.input_specs
    ]
    return program


def _tensor(program: ExportedProgram, target: str | None) -> object:
    return program.state_dict.get(target or "", program.constants.get(target or ""))


def _same_view(a: object, b: object) -> bool:
    """Return whether two tensors are the same view of the same storage."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return storage_view_key(a) == storage_view_key(b)
