"""Import of ``scan`` as a ``torch.prim.Loop`` over the leading axis that carries state and stacked results."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.importing.handlers.higher_order.counted_loops import LeadingAxis, counted_loop
from fx_importer.importing.handlers.higher_order.operands import arguments_of
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_scan(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import ``scan(graph, initial, xs, captured)``; ``graph(*carried, *x, *captured)`` returns ``[*carried, *y]``.

    Export has moved the scanned axis to the front, and flipped it for ``reverse=True``.
    """
    graph, initial, xs, captured = arguments_of(node)
    axis = LeadingAxis(build, xs, [*initial, *captured])
    carried, constant = build.values(initial), build.values(captured)
    examples = build.example(node)[len(carried) :]

    def step(index: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        state, stacks = values[: len(carried)], values[len(carried) :]
        results = build.inline(graph, [*state, *axis.read(index), *constant])
        ys = zip(stacks, examples, results[len(carried) :], strict=True)
        return [*results[: len(carried)], *(axis.write(stack, example, y, index) for stack, example, y in ys)]

    return counted_loop(build, axis.length, [*carried, *map(axis.stack, examples)], step)
