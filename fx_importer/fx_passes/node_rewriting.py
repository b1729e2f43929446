"""Helpers of node rewrites: comparing example values, and emitting nodes with example values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

from fx_importer.fx_graph.operators import aten

TENSOR_OVERLOADS = {
    getattr(aten, name).Scalar: getattr(aten, name).Tensor
    for name in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
}
"""Overloads for a tensor instead of a number as the second operand."""

NodeRewrite = Callable[[fx.Node], "fx.Node | None"]
"""Returns the replacement of a node, or None. It may change the node's arguments, but not its type."""
NodeRewrites = Mapping[Any, NodeRewrite]
"""Rewrites by operator."""

_KEPT_METADATA = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")


def is_in_place(node: fx.Node) -> bool:
    """Return whether ``node`` mutates one of its arguments; a copy is then no identity."""
    if not isinstance(node.target, OpOverload) or node.target is aten.detach_.default:  # does not change values
        return False
    return node.target._schema.is_mutable


def value_of(argument: Any) -> Any:
    """Return the example value of a node; other arguments are returned unchanged."""
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def same_size(a: int | SymInt, b: int | SymInt) -> bool:
    """Return whether two sizes are the same integer or expression. Unlike ``==``, this adds no guard."""
    if isinstance(a, SymInt) and isinstance(b, SymInt):
        return a.node.expr == b.node.expr
    return not isinstance(a, SymInt) and not isinstance(b, SymInt) and a == b


def same_type(a: Any, b: Any) -> bool:
    """Return whether two values are tensors of equal dtype and shape."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    if a.dtype != b.dtype or a.dim() != b.dim():
        return False
    return all(same_size(m, n) for m, n in zip(a.shape, b.shape, strict=True))


def remember_dtypes(graph: fx.Graph) -> None:
    """Record the model's dtypes on calls of custom operators, as ``model_dtypes`` in the node's metadata.

    Arguments come first, in schema order, then results.
    """
    for node in graph.nodes:
        if isinstance(node.target, OpOverload) and node.target.namespace not in ("aten", "prims"):
            names = [argument.name for argument in node.target._schema.arguments]
            given = dict(zip(names, node.args, strict=False)) | node.kwargs
            values = map_aggregate([*(given.get(name) for name in names), node], value_of)
            dtypes = [leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
            if any(dtype.is_complex or not (dtype.is_signed or dtype is torch.bool) for dtype in dtypes):
                node.meta.setdefault("model_dtypes", dtypes)


def rewrite_nodes(nodes: Iterable[fx.Node], rules: NodeRewrites) -> None:
    """Replace each of ``nodes`` that ``rules`` have a replacement for."""
    for node in nodes:
        rule = rules.get(node.target) if node.op == "call_function" else None
        if rule is not None and (replacement := rule(node)) is not None:
            node.replace_all_uses_with(replacement)
            node.graph.erase_node(node)


def emit(before: fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
    """Insert a call before ``before`` with its source location, and compute the example value."""
    with before.graph.inserting_before(before):
        node = before.graph.call_function(target, args, kwargs)
    node.meta.update({key: before.meta[key] for key in _KEPT_METADATA if key in before.meta})
    values = map_aggregate((args, kwargs), value_of)
    # The C++ kernel of a pad takes no symbolic sizes.
    dispatcher = enable_python_dispatcher() if target is aten.constant_pad_nd.default else nullcontext()
    with torch.no_grad(), fake_mode_of_values(before, values), dispatcher:
        node.meta["val"] = target(*values[0], **values[1])
    return node


def converted(before: fx.Node, x: Any, dtype: torch.dtype) -> fx.Node:
    """Return ``x`` in ``dtype``, converted before ``before`` if it has another."""
    return x if value_of(x).dtype == dtype else emit(before, aten._to_copy.default, x, dtype=dtype)


def fake_mode_of_values(node: fx.Node, values: Any) -> AbstractContextManager[Any]:
    """Return the fake mode of the example values of ``node`` and ``values``."""
    # Outside of it, an operator without tensor arguments (arange) would run on real data and specialize symbols.
    leaves = tree_leaves((value_of(node), values))
    return next((leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor)), nullcontext())
