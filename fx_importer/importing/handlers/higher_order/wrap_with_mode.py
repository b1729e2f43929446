"""Inlining of regions traced under a mode (autocast, strict, …), which their graphs reflect, or of constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_wrapped(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``wrap_with_…(*settings, graph, *operands)`` with any settings."""
    position = next(i for i, argument in enumerate(node.args) if build.is_subgraph(argument))
    return inlined(node, build, node.args[position], node.args[position + 1 :])


def import_strict_mode(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``strict_mode(graph, operands)``."""
    graph, operands = node.args
    return inlined(node, build, graph, operands)


def inlined(node: fx.Node, build: NodeBuilder, graph: Any, operands: Any) -> ir.Value | Sequence[ir.Value]:
    """Inline ``graph`` at ``node`` and return its results."""
    assert isinstance(operands, Iterable)
    results = build.inline(graph, build.values(operands))
    return results if isinstance(build.example(node), (list, tuple)) else results[0]


def import_hints_wrapper(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``hints_wrapper(graph, operands, {}, hints=…)``."""
    graph, operands, *_ = node.args
    return inlined(node, build, graph, operands)


def import_run_const_graph(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
    """Import ``run_const_graph(graph, operands)``."""
    graph, operands = node.args
    return inlined(node, build, graph, operands)
