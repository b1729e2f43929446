"""``invoke_subgraph`` is inlined, as the lowerings would do with a call."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.bindings import ir
from fx_importer.importing.builder import NodeBuilder
from fx_importer.importing.handlers.hop.wrap import inlined


def import_invoke_subgraph(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``invoke_subgraph(graph, identifier, *operands)``."""
    graph, _, *operands = node.args
    return inlined(node, build, graph, operands)
