"""The nodes of an exported program that a wrong result may come from."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from torch import fx
from torch.export import ExportedProgram

from fx_importer.verification.comparison import Comparison
from fx_importer.verification.verdict import Check

Compared = Mapping[str, Comparison]
"""Comparisons of intermediate values by node name, in order."""


def nodes_by_name(program: ExportedProgram) -> dict[str, fx.Node]:
    """Return the nodes of ``program`` by name, in order."""
    return {node.name: node for node in program.graph.nodes}


def source_node(node: fx.Node) -> fx.Node:
    """Return the node whose results ``node`` selects from with ``getitem``, or ``node``."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def suspect_nodes(program: ExportedProgram, compared: Compared) -> list[str]:
    """Return the nodes with wrong values and right inputs."""
    tainted: set[str] = set()
    suspects: list[str] = []
    for node in program.graph.nodes:
        from_wrong = any(operand.name in tainted for operand in node.all_input_nodes)
        known = compared.get(node.name)
        if (from_wrong and known is None) or (known is not None and not known.passed):
            tainted.add(node.name)
        if known is not None and not known.passed and not from_wrong:
            suspects.append(node.name)
    return suspects


def first_wrong_output_node(program: ExportedProgram, check: Check) -> str:
    """Return the node of the first wrong output; for other results, the last node."""
    position = next(i for i, each in enumerate(check.outputs) if not each.comparison.passed)
    returned = program.graph.output_node().args[0]
    assert isinstance(returned, list | tuple)
    node = returned[position] if position < len(returned) else None
    if isinstance(node, fx.Node) and node.op == "call_function":
        return node.name
    return [node.name for node in program.graph.nodes if node.op == "call_function"][-1]
