"""Regions traced under a mode (no gradients, autocast, strict) are inlined: the graph in them is right as it is."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.bindings import ir
from fx_importer.importing.builder import NodeBuilder


def import_wrapped(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import ``wrap_with_…(*settings, graph, *operands)``, whatever the settings are."""
    position = next(i for i, argument in enumerate(node.args) if build.is_subgraph(argument))
    return build.inline(node.args[position], build.values(node.args[position + 1 :]))
