"""Import of ``associative_scan`` as a ``torch.prim.Loop`` that combines the elements sequentially."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fx_importer.importing.handlers.higher_order.counted_loops import LeadingAxis, counted_loop
from fx_importer.importing.handlers.higher_order.operands import arguments_of
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.torch import constant_of


def import_associative_scan(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import ``associative_scan(graph, xs, captured)``; ``graph(*left, *right, *captured)`` returns their combination.

    The first element is the first result, so the loop starts at the second one. Export has moved the scanned
    axis to the front, and flipped it for ``reverse=True``.
    """
    graph, xs, captured = arguments_of(node)
    axis = LeadingAxis(build, xs, captured)
    constant, one = build.values(captured), build.constant(1)
    examples = [build.example(x) for x in xs]
    integer = build.types.parse("!torch.int")
    count = len(xs)

    def step(turn: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        index = build.op("torch.aten.add.int", [integer], [turn, one]).result
        combined = build.inline(graph, [*values[:count], *axis.read(index), *constant])
        stacks = zip(values[count:], examples, combined, strict=True)
        return [*combined, *(axis.write(stack, example, y, index) for stack, example, y in stacks)]

    length = constant_of(axis.length)
    if length is None:
        turns = build.op("torch.aten.sub.int", [integer], [axis.length, one]).result
    else:
        turns = build.constant(max(length - 1, 0))
    first = axis.read(build.constant(0))
    return counted_loop(build, turns, [*first, *axis.tensors], step)[count:]
