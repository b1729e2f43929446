"""Tensors without elements: whatever computes one, it is the same. Lowerings fail on them, or divide by zero."""

from __future__ import annotations

import math
import operator

import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload

from fx_importer.canonicalization.rewriting import emit, value_of

aten = torch.ops.aten


def fold_empty(graph: fx.Graph) -> None:
    """Put a constant in the place of every tensor of ``graph`` that is known to have no elements."""
    for node in graph.nodes:
        if node.target is not aten.full.default and _is_computed(node) and _is_empty(value_of(node)):
            value = value_of(node)
            node.replace_all_uses_with(emit(node, aten.full.default, list(value.shape), 0, dtype=value.dtype))


def _is_computed(node: fx.Node) -> bool:
    """Whether an ATen operator computes ``node``. A token has no elements either, and stands for an effect."""
    source = node.args[0] if node.target is operator.getitem else node
    return isinstance(source, fx.Node) and isinstance(source.target, OpOverload) and source.target.namespace == "aten"


def _is_empty(value: object) -> bool:
    if not isinstance(value, Tensor) or any(isinstance(size, SymInt) for size in value.shape):
        return False
    return math.prod(value.shape) == 0
