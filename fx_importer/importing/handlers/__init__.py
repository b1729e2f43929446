"""The table of contents: which handler imports which target."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.bindings import ir
from fx_importer.importing.builder import NodeBuilder, Refused
from fx_importer.importing.handlers.aten import import_overload
from fx_importer.importing.handlers.getitem import import_getitem
from fx_importer.importing.handlers.symbolic import SYMBOLIC_FUNCTIONS, import_symbolic


def import_call(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import a ``call_function`` node and return its results.

    Raises:
        Refused: if the target has no handler, or its handler cannot take it.
    """
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return import_overload(node, build)
    if target is operator.getitem:
        return import_getitem(node, build)
    if target in SYMBOLIC_FUNCTIONS:
        return import_symbolic(node, build)
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise Refused(f"the higher-order op {target.name()} cannot be imported yet")
    name = getattr(target, "__qualname__", None) or str(target)
    raise Refused(f"{name} is not an operator that can be imported: lift it out of the graph, or make it a custom op")
