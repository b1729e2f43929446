"""Inlining of ``hints_wrapper``. Its compiler hints are dropped."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.importing.handlers.higher_order.wrap_with_mode import inlined
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_hints_wrapper(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``hints_wrapper(graph, operands, {}, hints=…)``."""
    graph, operands, *_ = node.args
    return inlined(node, build, graph, operands)
