"""The table of contents: which handler imports which target."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.bindings import ir
from fx_importer.importing.builder import NodeBuilder, Refused
from fx_importer.importing.handlers.aten import import_overload
from fx_importer.importing.handlers.getitem import import_getitem
from fx_importer.importing.handlers.hop.cond import import_cond
from fx_importer.importing.handlers.hop.while_loop import import_while_loop
from fx_importer.importing.handlers.hop.wrap import import_wrapped
from fx_importer.importing.handlers.symbolic import SYMBOLIC_FUNCTIONS, import_symbolic

hop = torch.ops.higher_order

HIGHER_ORDER: dict[Any, Callable[[fx.Node, NodeBuilder], Sequence[ir.Value]]] = {
    hop.cond: import_cond,
    hop.while_loop: import_while_loop,
    hop.wrap_with_set_grad_enabled: import_wrapped,
    hop.wrap_with_autocast: import_wrapped,
    hop.strict_mode: import_wrapped,
}


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
    if target in HIGHER_ORDER:
        return HIGHER_ORDER[target](node, build)
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise Refused(f"the higher-order op {target.name()} cannot be imported yet")
    name = getattr(target, "__qualname__", None) or str(target)
    raise Refused(f"{name} is not an operator that can be imported: lift it out of the graph, or make it a custom op")
