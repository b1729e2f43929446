"""Tensors without elements: whatever computes one, it is the same. Lowerings fail on them, or divide by zero."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor, fx
from torch._ops import OpOverload

from fx_importer.canonicalization.node_rewriting import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import is_empty


def fold_empty(graph: fx.Graph) -> None:
    """Put a constant in the place of every tensor of ``graph`` that is known to have no elements."""
    for node in graph.nodes:
        if node.target is aten.cat.default:
            _join_elements(node)
        if node.target is not aten.full.default and _is_computed(node) and is_empty(value_of(node)):
            node.replace_all_uses_with(_nothing(node, value_of(node)))
        elif node.target is aten.reshape.default and 0 in node.args[1] and -1 not in node.args[1]:
            # Of other sizes that are not known; C++ divides by those that are.
            node.replace_all_uses_with(_nothing(node, value_of(node), node.args[1]))
        elif node.op == "placeholder" and is_empty(value_of(node)):
            for user in [user for user in node.users if user.op != "output"]:
                user.replace_input_with(node, _nothing(user, value_of(node)))


def _nothing(before: fx.Node, value: Tensor, sizes: Any = None) -> fx.Node:
    return emit(before, aten.full.default, list(value.shape) if sizes is None else sizes, 0, dtype=value.dtype)


def _join_elements(cat: fx.Node) -> None:
    """Take tensors without elements out of what ``cat`` joins, where its dtype is not theirs."""
    tensors, *axis = cat.args
    kept = [each for each in tensors if not is_empty(value_of(each))]  # type: ignore[union-attr]
    if any(value_of(each).dtype == value_of(cat).dtype for each in kept):
        cat.args = (kept, *axis)


def _is_computed(node: fx.Node) -> bool:
    """Whether an ATen operator computes ``node``. A token has no elements either, and stands for an effect."""
    source = node.args[0] if node.target is operator.getitem else node
    return isinstance(source, fx.Node) and isinstance(source.target, OpOverload) and source.target.namespace == "aten"
