"""Operators that write to a list of tensors, as optimizers call them: calls of the operator on each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

LOOP = torch._C.DispatchKey.CompositeExplicitAutograd
"""The kernel for all devices of ``_foreach`` operators calls the operator of single tensors in a loop."""


def writes_to_list(node: fx.Node) -> bool:
    """Return whether ``node`` is a ``_foreach`` operator in place."""
    target = node.target
    if not isinstance(target, OpOverload) or not target._schema.is_mutable:
        return False
    return target._schema.name.startswith("aten::_foreach_") and target.has_kernel_for_dispatch_key(LOOP)


def expand_writes_to_lists(graph: fx.Graph, owner: fx.GraphModule) -> None:
    """Replace the operators of ``graph`` that write to a list by those that write to each tensor."""
    for node in filter(writes_to_list, graph.nodes):
        values: dict[fx.Node, Any] = {operand: operand.meta["val"] for operand in node.all_input_nodes}
        args, kwargs = (map_arg(arguments, values.__getitem__) for arguments in (node.args, node.kwargs))
        with _Recorder(node, values):
            node.target._op_dk(LOOP, *args, **kwargs)
        graph.erase_node(node)


class _Recorder(TorchDispatchMode):
    """Adds calls to the graph, before the call that makes them."""

    def __init__(self, before: fx.Node, values: Mapping[fx.Node, Any]):
        super().__init__()
        self._before = before
        self._nodes = {id(value): (node, value) for node, value in values.items()}  # values keep their ids

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record a call."""
        kwargs = kwargs or {}
        arguments = tree_map_only(Tensor, lambda value: self._nodes[id(value)][0], (args, kwargs))
        with self._before.graph.inserting_before(self._before):
            node = self._before.graph.call_function(func, *arguments)
        result = node.meta["val"] = func(*args, **kwargs)
        node.meta = {**self._before.meta, "val": result}
        self._nodes.setdefault(id(result), (node, result))
        return result
