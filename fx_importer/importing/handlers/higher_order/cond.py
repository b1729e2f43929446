"""Import of ``torch.cond`` as ``torch.prim.If`` with a region for each branch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.importing.handlers.higher_order.operands import arguments_of
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_cond(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import ``cond(predicate, true_graph, false_graph, operands)``."""
    predicate, then_graph, else_graph, *captured = arguments_of(node)
    operands = build.values(captured[0] if captured else ())
    types = [build.types.of(example) for example in build.example(node)]
    if_op = build.op("torch.prim.If", types, [build.as_bool(build.value(predicate))], regions=2)
    for region, graph in zip(if_op.regions, (then_graph, else_graph), strict=True):
        with build.inside(region.blocks.append()):
            results = build.inline(graph, operands)
            build.op("torch.prim.If.yield", [], [build.cast(v, t) for v, t in zip(results, types, strict=True)])
    return list(if_op.results)
