"""Helpers of node rewrites: comparing example values, and replacing nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten

TENSOR_OVERLOADS = {
    getattr(aten, name).Scalar: getattr(aten, name).Tensor
    for name in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
}
"""Overloads for a tensor instead of a number as the second operand."""

FACTORS = frozenset(
    (
        *(aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.div.Tensor_mode),
        *(aten.div.Scalar_mode, aten.floor_divide.default, aten.floor_divide.Scalar),
    )
)
"""Operators for which eager does not round a number, their second operand, to half precision."""

NodeRewrite = Callable[[fx.Node], "fx.Node | None"]
"""Returns the replacement of a node, or None. It may change the node's arguments, but not its type."""
NodeRewrites = Mapping[Any, NodeRewrite]
"""Rewrites by operator."""


def is_in_place(node: fx.Node) -> bool:
    """Return whether ``node`` mutates one of its arguments; a copy is then no identity."""
    if not isinstance(node.target, OpOverload) or node.target is aten.detach_.default:  # does not change values
        return False
    return node.target._schema.is_mutable


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
            arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
            values = map_aggregate([*(arguments.get(name) for name in names), node], value_of)
            dtypes = [leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
            if any(dtype.is_complex or not (dtype.is_signed or dtype is torch.bool) for dtype in dtypes):
                node.meta.setdefault("model_dtypes", dtypes)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Return all arguments of ``node`` by name, in order."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    names = [argument.name for argument in schema]
    passed = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return {argument.name: passed.get(argument.name, argument.default_value) for argument in schema}


def rewrite_nodes(nodes: Iterable[fx.Node], rules: NodeRewrites) -> None:
    """Replace each of ``nodes`` that ``rules`` have a replacement for."""
    for node in nodes:
        rule = rules.get(node.target) if node.op == "call_function" else None
        if rule is not None and (replacement := rule(node)) is not None:
            node.replace_all_uses_with(replacement)
            node.graph.erase_node(node)


def converted(before: fx.Node, x: Any, dtype: torch.dtype) -> fx.Node:
    """Return ``x`` in ``dtype``, converted before ``before`` if it has another."""
    return x if value_of(x).dtype == dtype else emit(before, aten._to_copy.default, x, dtype=dtype)
