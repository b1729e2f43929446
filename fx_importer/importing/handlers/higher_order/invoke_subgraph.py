"""Import of ``invoke_subgraph``: a function call if layers are outlined, otherwise inlined."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.importing.handlers.higher_order.wrap_with_mode import inlined
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_invoke_subgraph(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``invoke_subgraph(graph, identifier, *operands)``."""
    graph, name, *operands = node.args
    if build.outlines is not None:
        return build.call(graph, str(name), build.values(operands))
    return inlined(node, build, graph, operands)
