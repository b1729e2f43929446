"""Import of ``while_loop`` as a ``torch.prim.Loop`` without a bound on its trip count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from fx_importer.importing.handlers.higher_order.operands import arguments_of
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir

_NO_BOUND = 2**63 - 1


def import_while_loop(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import ``while_loop(condition_graph, body_graph, carried, captured)``. The condition is computed where it is due:
    before the loop, and at the end of each turn."""
    condition_graph, body_graph, carried, captured = arguments_of(node)
    constant = build.values(captured)
    types = [build.types.of(example) for example in build.example(node)]
    initial = [build.cast(value, type_) for value, type_ in zip(build.values(carried), types, strict=True)]

    def condition(values: Sequence[Any]) -> ir.Value:
        (result,) = build.inline(condition_graph, [*values, *constant])
        return build.as_bool(result)

    loop = build.op("torch.prim.Loop", types, [build.constant(_NO_BOUND), condition(initial), *initial], regions=1)
    arguments = [build.types.parse("!torch.int"), *types]
    block = loop.regions[0].blocks.append(*arguments, arg_locs=[build.location] * len(arguments))
    with build.inside(block):
        results = build.inline(body_graph, [*list(block.arguments)[1:], *constant])
        turn = [build.cast(value, type_) for value, type_ in zip(results, types, strict=True)]
        build.op("torch.prim.Loop.condition", [], [condition(turn), *turn])
    return list(loop.results)
