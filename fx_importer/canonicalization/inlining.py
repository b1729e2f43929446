"""Regions that mean their body: export wraps what runs under ``torch.no_grad`` and the like."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import Argument

_HIGHER_ORDER = torch.ops.higher_order

REGIONS = {
    _HIGHER_ORDER.wrap_with_set_grad_enabled: 1,  # (enabled, body, *operands)
    _HIGHER_ORDER.strict_mode: 0,  # (body, operands)
}


def inline_regions(graph: fx.Graph, owner: torch.nn.Module) -> None:
    """Put the bodies of such regions of ``graph``, which are attributes of ``owner``, in their places."""
    for node in graph.nodes:
        if (position := REGIONS.get(node.target)) is not None:
            body, *operands = node.args[position:]
            _inline(node, body.target, owner, operands[0] if node.target is _HIGHER_ORDER.strict_mode else operands)


def _inline(node: fx.Node, name: str, owner: torch.nn.Module, operands: Sequence[Argument]) -> None:
    region = owner.get_submodule(name)
    assert isinstance(region, fx.GraphModule)
    body = copy.deepcopy(region.graph)
    for attribute in body.find_nodes(op="get_attr"):
        attribute.target = f"{name}.{attribute.target}"
    inputs: dict[fx.Node, Any] = dict(zip(body.find_nodes(op="placeholder"), operands, strict=True))
    with node.graph.inserting_before(node):
        results = node.graph.graph_copy(body, inputs)
    assert isinstance(results, tuple | list), f"the region {node.name} returns a tuple"
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])  # type: ignore[arg-type]
        node.graph.erase_node(user)
    node.graph.erase_node(node)
    inline_regions(node.graph, owner)
