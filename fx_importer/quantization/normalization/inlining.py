"""Calls in a graph replaced by the graph of a function of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg


def inline(node: fx.Node, function: Callable[..., Any]) -> None:
    """Replace the call ``node`` by the operators that ``function``, called with its arguments, calls.

    Composite operators, such as linear layers, stay.
    """
    inputs = node.all_input_nodes
    examples = [argument.meta["val"] for argument in inputs]
    mode = next((example.fake_mode for example in examples if isinstance(example, FakeTensor)), None)
    assert mode is not None

    def compute(*values: Any) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), dict(zip(inputs, values, strict=True)).__getitem__)
        return function(*args, **kwargs)

    with torch.no_grad(), mode:
        traced = make_fx(compute, pre_dispatch=True)(*examples)
    for inner in traced.graph.nodes:
        inner.meta |= {name: node.meta[name] for name in ("stack_trace", "nn_module_stack") if name in node.meta}
    placeholders = traced.graph.find_nodes(op="placeholder")
    graph = node.graph
    with graph.inserting_before(node):
        result: Any = graph.graph_copy(traced.graph, dict(zip(placeholders, inputs, strict=True)))
    if isinstance(result, fx.Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):  # getitem
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)  # eliminate_dead_code keeps operators that may sample random numbers
