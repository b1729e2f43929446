"""``torch.cond`` becomes ``torch.prim.If``, each branch in its region."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.bindings import ir
from fx_importer.importing.builder import NodeBuilder


def import_cond(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import ``cond(predicate, true_graph, false_graph, operands)``."""
    predicate, then_graph, else_graph, captured = node.args
    operands = build.values(captured)  # pyright: ignore[reportArgumentType]
    types = [build.types.of(example) for example in build.example(node)]
    if_op = build.op("torch.prim.If", types, [build.as_bool(build.value(predicate))], regions=2)
    for region, graph in zip(if_op.regions, (then_graph, else_graph), strict=True):
        with build.inside(region.blocks.append()):
            build.op("torch.prim.If.yield", [], build.inline(graph, operands))
    return list(if_op.results)
