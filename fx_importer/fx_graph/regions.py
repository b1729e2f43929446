"""Inlining of regions: higher-order operators in which export wraps code under ``torch.no_grad`` and the like."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.programs import with_rewritten_graphs

_HIGHER_ORDER = torch.ops.higher_order

REGIONS: Mapping[Any, Callable[..., tuple[fx.Node, Sequence[Any]]]] = {
    _HIGHER_ORDER.wrap_with_set_grad_enabled: lambda enabled, body, *operands: (body, operands),
    _HIGHER_ORDER.strict_mode: lambda body, operands: (body, operands),
    _HIGHER_ORDER.hints_wrapper: lambda body, operands, keywords, **hints: (body, operands),
    _HIGHER_ORDER.invoke_subgraph: lambda body, identifier, *operands: (body, operands),
    _HIGHER_ORDER.run_const_graph: lambda body, operands: (body, operands),
}
"""By higher-order operator, a function that returns body and operands from its arguments."""


def with_inlined_regions(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with its regions inlined, so that the uses and writes of a tensor are in one graph."""
    return with_rewritten_graphs(program, inline_regions) if has_regions(program.graph_module) else program


def has_regions(module: torch.nn.Module) -> bool:
    """Return whether ``module`` or a submodule has regions."""
    graphs = [part.graph for part in module.modules() if isinstance(part, fx.GraphModule)]
    return any(graph.find_nodes(op="call_function", target=region) for graph in graphs for region in REGIONS)


def inline_regions(graph: fx.Graph, owner: torch.nn.Module) -> None:
    """Inline the regions of ``graph``, whose bodies are attributes of ``owner``."""
    for node in graph.nodes:
        if (region := REGIONS.get(node.target)) is not None:
            body, operands = region(*node.args, **node.kwargs)
            _inline(node, str(body.target), owner, operands)


def _inline(node: fx.Node, name: str, owner: torch.nn.Module, operands: Sequence[Any]) -> None:
    region = owner.get_submodule(name)
    assert isinstance(region, fx.GraphModule)
    body = copy.deepcopy(region.graph)
    for attribute in body.find_nodes(op="get_attr"):
        attribute.target = f"{name}.{attribute.target}"
    inputs: dict[fx.Node, Any] = dict(zip(body.find_nodes(op="placeholder"), operands, strict=True))
    with node.graph.inserting_before(node):
        results = node.graph.graph_copy(body, inputs)
    if isinstance(results, fx.Node) and not isinstance(node.meta["val"], tuple | list):
        node.replace_all_uses_with(results)
    for user in list(node.users):
        assert user.target is operator.getitem
        assert isinstance(results, tuple | list)
        user.replace_all_uses_with(results[user.args[1]])  # type: ignore[arg-type]
        node.graph.erase_node(user)
    node.graph.erase_node(node)
    inline_regions(node.graph, owner)
