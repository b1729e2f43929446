"""Exported programs as values: changing a graph makes a new program."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch import fx
from torch.export import ExportedProgram


def with_rewritten_graphs(program: ExportedProgram, rewrite: Callable[[fx.Graph], None]) -> ExportedProgram:
    """Return a copy of ``program`` with ``rewrite`` applied to its graph, and to those of its higher-order operators.

    ``program`` is left alone. The copy shares the weights and what the nodes' metadata holds.
    """
    root = _copied(program.graph_module, rewrite)
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


def _copied(module: fx.GraphModule, rewrite: Callable[[fx.Graph], None]) -> fx.GraphModule:
    graph = copy.deepcopy(module.graph)
    for node, original in zip(graph.nodes, module.graph.nodes, strict=True):
        node.name = original.name  # copying renames what export called `input`; the graph signature goes by names
    rewrite(graph)
    copied = fx.GraphModule(module, graph)
    copied.meta.update(module.meta)
    for name, child in module.named_children():
        if isinstance(child, fx.GraphModule):
            setattr(copied, name, _copied(child, rewrite))
    return copied
