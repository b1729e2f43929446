"""Operators that overwrite a tensor."""

from __future__ import annotations

from torch import fx
from torch._ops import OpOverload

from fx_importer.fx_graph.operators import aten, operator_named


def without_writes(graph: fx.Graph) -> None:
    """Replace operators that overwrite a tensor by those that do not, where nothing else reads it."""
    for node in list(graph.nodes):
        if node.target in (aten.dropout.default, aten.dropout_.default) and not node.args[2]:  # no dead code to torch
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        source = node.args[0] if node.args else None
        name = str(node.target)
        if isinstance(node.target, OpOverload) and "_." in name and isinstance(source, fx.Node):
            pure = operator_named(name.replace("_.", "."))
            fresh = isinstance(source.target, OpOverload) and not any(
                each.alias_info for each in source.target._schema.returns
            )
            if fresh and len(source.users) == 1 and isinstance(pure, OpOverload):
                node.target = pure
