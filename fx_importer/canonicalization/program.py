"""Carries an exported program to normal form."""

from __future__ import annotations

import copy

import torch
from torch import fx
from torch.export import ExportedProgram

aten = torch.ops.aten

_WITHOUT_RESULT = frozenset(
    (
        aten._assert_scalar.default,
        aten._assert_tensor_metadata.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
        aten._assert_async.msg,
    )
)


def canonicalize(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` in normal form; the given program is left alone, the weights are shared."""
    root = _canonical(program.graph_module)
    return ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _canonical(module: fx.GraphModule) -> fx.GraphModule:
    graph = copy.deepcopy(module.graph)
    for node in graph.nodes:
        if node.target in _WITHOUT_RESULT:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    canonical = fx.GraphModule(module, graph)
    canonical.meta.update(module.meta)
    for name, child in module.named_children():
        if isinstance(child, fx.GraphModule):
            setattr(canonical, name, _canonical(child))
    return canonical
