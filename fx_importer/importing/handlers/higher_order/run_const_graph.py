"""Inlining of ``run_const_graph``. Its constant computations are left to MLIR's constant folding."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.importing.handlers.higher_order.wrap_with_mode import inlined
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_run_const_graph(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``run_const_graph(graph, operands)``."""
    graph, operands = node.args
    return inlined(node, build, graph, operands)
