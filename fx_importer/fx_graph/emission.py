"""Emission of nodes with example values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

SymNumber = SymInt | SymFloat | SymBool
_KEPT_METADATA = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")


def value_of(argument: Any) -> Any:
    """Return the example value of a node; other arguments are returned unchanged."""
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def emit(before: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
    """Insert a call before ``before`` with its source location, and compute the example value."""
    node = insert_call(before, target, args, kwargs)
    values = map_aggregate((args, kwargs), value_of)
    # C++ kernels of composites, such as a pad, fix symbolic sizes.
    dispatcher = enable_python_dispatcher() if has_symbolic_sizes(values) else nullcontext()
    with torch.no_grad(), fake_mode_of_values(before, values), dispatcher:
        node.meta["val"] = target(*values[0], **values[1])
    return node


def has_symbolic_sizes(value: Any) -> bool:
    """Return whether ``value`` contains a symbolic number or a tensor with a dynamic dimension."""
    if isinstance(value, Tensor):
        return any(type(size) is not int for size in value.shape)
    if isinstance(value, dict):
        return any(map(has_symbolic_sizes, value.values()))
    if isinstance(value, tuple | list):
        return any(map(has_symbolic_sizes, value))
    return isinstance(value, SymNumber)


def insert_call(
    before: fx.Node, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> fx.Node:
    """Insert a call before ``before`` with its source location, and without an example value."""
    with before.graph.inserting_before(before):
        node = before.graph.call_function(target, args, kwargs)
    node.meta.update({key: before.meta[key] for key in _KEPT_METADATA if key in before.meta})
    return node


def fake_mode_of_values(node: fx.Node, values: Any) -> AbstractContextManager[Any]:
    """Return the fake mode of the example values of ``node``, or of its operands if it has none, and ``values``.

    If these are numbers, it is the one of the graph's first tensor.
    """
    # Outside of it, an operator without tensor arguments (arange) would run on real data and specialize symbols.
    own = value_of(node)
    leaves = tree_leaves((list(map(value_of, node.all_input_nodes)) if own is None else own, values))
    if not any(isinstance(leaf, Tensor) for leaf in leaves):
        leaves = map(value_of, node.graph.nodes)
    return next((leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor)), nullcontext())
