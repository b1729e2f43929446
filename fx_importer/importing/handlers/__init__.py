"""Import of a call by the handler of its target."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from fx_importer.importing.handlers.assertions import ASSERTIONS, import_assertion
from fx_importer.importing.handlers.getitem import import_getitem
from fx_importer.importing.handlers.python_operators import SYMBOLIC_FUNCTIONS, import_symbolic
from fx_importer.importing.handlers.schema_operators import import_overload
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.value_map import Results


def import_call(node: fx.Node, build: NodeBuilder) -> Results:
    """Import a ``call_function`` node and return its results.

    Raises:
        UnsupportedNodeError: if the target has no handler, or its handler does not support the call.
    """
    target: Any = node.target
    if (handler := build.fx_importer.handlers.get(target)) is not None:
        return handler(node, build)
    if target in ASSERTIONS:
        return import_assertion(node, build)
    if isinstance(target, torch._ops.OpOverload):
        return import_overload(node, build)
    if target is operator.getitem:
        return import_getitem(node, build)
    if target in SYMBOLIC_FUNCTIONS:
        return import_symbolic(node, build)
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise UnsupportedNodeError(
            f"the higher-order op {target.name()} has no handler: FxImporter(handlers={{...}}) takes one of yours"
        )
    name = getattr(target, "__qualname__", None) or str(target)
    raise UnsupportedNodeError(
        f"{name} is not an operator that can be imported: lift it out of the graph, or make it a custom op"
    )
