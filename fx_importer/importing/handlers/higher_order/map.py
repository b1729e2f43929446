"""Import of ``map_impl`` as a ``torch.prim.Loop`` over the leading axis that carries the stacked results."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.importing.handlers.higher_order.counted_loops import LeadingAxis, counted_loop
from fx_importer.importing.handlers.higher_order.operands import arguments_of
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_map(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import ``map_impl(graph, xs, captured)``; ``graph(*x, *captured)`` returns ``[*y]``."""
    graph, xs, captured = arguments_of(node)
    axis = LeadingAxis(build, xs, captured)
    constant = build.values(captured)
    examples = build.example(node)

    def step(index: ir.Value, stacks: list[ir.Value]) -> list[ir.Value]:
        ys = build.inline(graph, [*axis.read(index), *constant])
        return [axis.write(s, example, y, index) for s, example, y in zip(stacks, examples, ys, strict=True)]

    return counted_loop(build, axis.length, [axis.stack(example) for example in examples], step)
