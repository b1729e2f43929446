"""Counted loops, and reads and writes along the leading axis, for the higher-order operators that scan it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.importing.handlers.higher_order.size_operands import Sizes
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir

Step = Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value]]
"""Takes the iteration index and the carried values, and returns the new carried values."""


def counted_loop(build: NodeBuilder, count: ir.Value, initial: Sequence[ir.Value], step: Step) -> list[ir.Value]:
    """Emit a ``torch.prim.Loop`` of ``step`` for the indices 0 to ``count - 1``, without another exit condition.

    A value passed between iterations keeps its initial type.
    """
    types = [value.type for value in initial]
    always = build.constant(True)
    loop = build.op("torch.prim.Loop", types, [count, always, *initial], regions=1)
    arguments = [build.types.parse("!torch.int"), *types]
    block = loop.regions[0].blocks.append(*arguments, arg_locs=[build.location] * len(arguments))
    with build.inside(block):
        index, *carried = block.arguments
        results = [build.cast(value, type_) for value, type_ in zip(step(index, carried), types, strict=True)]
        build.op("torch.prim.Loop.condition", [], [always, *results])
    return list(loop.results)


class LeadingAxis:
    """Axis 0, along which tensors are sliced and stacked. ``xs`` are nodes of tensors of equal length."""

    def __init__(self, build: NodeBuilder, xs: Sequence[fx.Node], others: Sequence[Any]):
        self._build = build
        self._examples = [build.example(x) for x in xs]
        self.tensors = build.values(xs)
        self.sizes = Sizes(build, [*xs, *others])
        self.length: ir.Value = self.sizes.value(self._examples[0].shape[0])

    def read(self, index: ir.Value) -> list[ir.Value]:
        """Return the slice at ``index`` of each tensor."""
        build, zero = self._build, self._build.constant(0)
        return [
            build.op("torch.aten.select.int", [build.types.tensor(e.dtype, e.shape[1:])], [x, zero, index]).result
            for x, e in zip(self.tensors, self._examples, strict=True)
        ]

    def stack(self, example: torch.Tensor) -> ir.Value:
        """Return a tensor of zeros like ``example``, into which `write` inserts slices."""
        build, no, none = self._build, self._build.constant(False), self._build.constant(None)
        sizes = build.list_of(self.sizes.values(example.shape), build.types.parse("!torch.list<int>"))
        operands = [sizes, build.constant(example.dtype), none, none, no]
        return build.op("torch.aten.zeros", [build.types.of(example)], operands).result

    def write(self, stacked: ir.Value, example: torch.Tensor, value: ir.Value, index: ir.Value) -> ir.Value:
        """Return ``stacked``, a tensor like ``example``, with ``value`` at ``index``."""
        build, zero, one = self._build, self._build.constant(0), self._build.constant(1)
        row = build.types.tensor(example.dtype, (1, *example.shape[1:]))
        value = build.op("torch.aten.unsqueeze", [row], [value, zero]).result
        end = build.op("torch.aten.add.int", [build.types.parse("!torch.int")], [index, one]).result
        operands = [stacked, value, zero, index, end, one]
        return build.op("torch.aten.slice_scatter", [build.types.of(example)], operands).result
