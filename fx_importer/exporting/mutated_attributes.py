"""Tensors that a program writes to and that are attributes of its modules, not buffers: they are state all the same.

A cache that a library keeps in an object of its own is such a tensor. torch.export takes it for a constant, beside the
buffer of the module that may be the same tensor, and torch's passes then refuse to write to it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from fx_importer.exporting.aliased_inputs import writes
from fx_importer.fx_graph.programs import storage_view_key, with_rewritten_graphs


def attributes_as_buffers(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with each constant that it writes to as the buffer which is the same tensor, or as a buffer of
    its own that is not in the state dict. The given program is left alone."""
    written = {name for name, _ in writes(program.graph)}
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
        if _is_one(_tensor(program, constant.target), _tensor(program, buffer.target))
    }

    def merge(graph: fx.Graph, _owner: fx.GraphModule) -> None:
        nodes = {node.name: node for node in graph.find_nodes(op="placeholder")}
        for constant, buffer in same.items():
            if constant in nodes and buffer in nodes:  # not those of a subgraph
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


def _is_one(a: object, b: object) -> bool:
    """Whether two tensors are one: the same memory, seen the same way."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return storage_view_key(a) == storage_view_key(b)
