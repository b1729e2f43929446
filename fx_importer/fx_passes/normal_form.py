"""Checker of the normal form."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx
from torch.export import ExportedProgram

from fx_importer.errors import UnsupportedNode
from fx_importer.fx_graph.regions import REGIONS
from fx_importer.fx_passes.assertions import ASSERTIONS
from fx_importer.fx_passes.emulation.rank_zero import ALONG_AN_AXIS, is_scalar
from fx_importer.fx_passes.identities import IDENTITIES
from fx_importer.fx_passes.node_rewriting import is_in_place


def violations(program: ExportedProgram) -> list[UnsupportedNode]:
    """Return the nodes of ``program``, subgraphs included, that are not in normal form, with reasons."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    return [UnsupportedNode(node.name, reason) for graph in graphs for node, reason in _violations(graph)]


def _violations(graph: fx.Graph) -> Iterator[tuple[fx.Node, str]]:
    calls = [node for node in graph.nodes if node.op == "call_function"]
    # A graph with in-place operators is not canonicalized further: see `is_in_place`.
    if in_place := [node for node in calls if is_in_place(node)]:
        yield from ((node, f"{node.target} writes to its argument") for node in in_place)
    else:
        yield from ((node, reason) for node in calls for reason in _reasons(node))


def _reasons(node: fx.Node) -> Iterator[str]:
    if node.target in REGIONS:
        yield f"{node.target} is a region that has not been inlined"
    if node.target in ASSERTIONS:
        yield f"{node.target} is an assertion"
    if not node.users and not node.is_impure():
        yield "it has no users"
    if (rule := IDENTITIES.get(node.target)) is not None and rule(node) is not None:
        yield f"{node.target} returns its argument"
    if node.target in ALONG_AN_AXIS and is_scalar(node.args[0]):
        yield f"{node.target} reduces or indexes along an axis of a rank-0 tensor"
