"""Separate memory for the operands of loops: torch refuses to trace a loop again whose operands share memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import storage_key

_LOOPS = (torch.ops.higher_order.while_loop, torch.ops.higher_order.scan)


def is_loop(node: fx.Node) -> bool:
    """Return whether ``node`` is a loop whose operands may share memory, such as a value that is also closed over."""
    return node.target in _LOOPS


def separate_operands(graph: fx.Graph, _: fx.GraphModule) -> None:
    """Clone operands of loops that share memory with an operand before them, in place. A loop writes none of them."""
    for loop in filter(is_loop, graph.nodes):
        known: set[int] = set()
        loop.args = tuple(_separated(loop, argument, known) for argument in loop.args)


def _separated(loop: fx.Node, argument: Any, known: set[int]) -> Any:
    if isinstance(argument, list | tuple):
        return type(argument)(_separated(loop, operand, known) for operand in argument)
    value = value_of(argument) if isinstance(argument, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return argument
    if (key := storage_key(value)) in known:
        return emit(loop, aten.clone.default, argument)
    known.add(key)
    return argument
