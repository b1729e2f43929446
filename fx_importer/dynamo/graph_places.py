"""Where the operators of an AOTAutograd graph run: on devices, and launches of Triton kernels by Triton."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from fx_importer.dynamo.eager_parts import EAGER, LAUNCH
from fx_importer.dynamo.random_numbers import is_drawn

_CPU, _META = torch.device("cpu"), torch.device("meta")


def devices_of(graph: fx.Graph) -> frozenset[torch.device]:
    """Return the devices of the tensors that a program of ``graph`` takes and returns.

    Values inside of a program have no device.
    """
    returned = graph.output_node().all_input_nodes
    taken = (node for node in graph.nodes if is_drawn(node) or (node.op == "placeholder" and _is_read(node)))
    computed = (node for node in returned if node.op != "placeholder")
    results = frozenset(value.device for node in computed for value in _values(node))
    return results | {device for node in taken for device in _needed(node)}


def place_of(node: fx.Node) -> Any:
    """Return the device on which ``node`` computes, `EAGER` for a copy between devices, or None for numbers."""
    operands = {device for source in node.all_input_nodes for device in _needed(source)}
    devices = operands | {value.device for value in _values(node)}
    return EAGER if len(devices) > 1 else next(iter(devices), None)


def launches_triton(node: fx.Node) -> bool:
    """Return whether ``node`` launches a Triton kernel, itself or in a branch or loop."""
    return node.target is LAUNCH or any(
        module.graph.find_nodes(op="call_function", target=LAUNCH) for module in _subgraphs(node)
    )


def _is_read(node: fx.Node) -> bool:
    return any(user.op != "output" for user in node.users)


def _needed(node: fx.Node) -> Iterator[torch.device]:
    """Yield the devices of a program that takes ``node``; a tensor of rank 0 on the host is taken everywhere."""
    return (value.device for value in _values(node) if value.dim() or value.device != _CPU)


def _values(node: fx.Node) -> Iterator[Tensor]:
    for leaf in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(leaf, Tensor) and leaf.device != _META:
            yield leaf


def _subgraphs(node: fx.Node) -> Iterator[fx.GraphModule]:
    owner = node.graph.owning_module
    for source in node.all_input_nodes:
        value = getattr(owner, str(source.target), None) if source.op == "get_attr" else None
        if isinstance(value, fx.GraphModule):
            yield from (module for module in value.modules() if isinstance(module, fx.GraphModule))
