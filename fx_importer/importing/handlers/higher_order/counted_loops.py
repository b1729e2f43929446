"""Counted loops, reads and writes along the leading axis, and sizes as values, for the operators that scan it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.torch import constant_of

INT = "!torch.int"


class Sizes:
    """Symbolic sizes available from nodes of tensors and symbolic integers."""

    def __init__(self, build: NodeBuilder, nodes: Iterable[Any]):
        self._build = build
        self._known: dict[sympy.Expr, tuple[fx.Node, int | None]] = {}
        self._values: dict[sympy.Expr, ir.Value] = {}
        for node in nodes:
            example = build.example(node) if isinstance(node, fx.Node) else None
            if isinstance(example, torch.SymInt):
                self._known.setdefault(example.node.expr, (node, None))
            elif isinstance(example, torch.Tensor):
                for axis, size in enumerate(example.shape):
                    if isinstance(size, torch.SymInt):
                        self._known.setdefault(size.node.expr, (node, axis))

    def values(self, sizes: Iterable[int | torch.SymInt]) -> list[ir.Value]:
        """Return ``sizes`` as integers of the torch dialect."""
        return [self.value(size) for size in sizes]

    def value(self, size: int | torch.SymInt) -> ir.Value:
        """Return ``size`` as an integer of the torch dialect.

        Raises:
            UnsupportedNodeError: for an expression that is not a sum, product or integer quotient of known sizes.
        """
        if not isinstance(size, torch.SymInt):
            return self._build.constant(size)
        expression = size.node.expr
        if expression not in self._values:
            self._values[expression] = self._expression(expression)
        return self._values[expression]

    def _expression(self, expression: Any) -> ir.Value:
        build = self._build
        if isinstance(expression, sympy.Integer):
            return build.constant(int(expression))
        if expression in self._known:
            node, axis = self._known[expression]
            value = build.value(node)
            return value if axis is None else self._emit("size.int", value, build.constant(axis))
        if name := {"Add": "add.int", "Mul": "mul.int", "FloorDiv": "floordiv.int"}.get(type(expression).__name__):
            first, *rest = (self._expression(argument) for argument in expression.args)
            for other in rest:
                first = self._emit(name, first, other)
            return first
        raise UnsupportedNodeError(f"the size {expression} cannot be computed from the sizes of the operands")

    def _emit(self, name: str, *operands: ir.Value) -> ir.Value:
        return self._build.op(f"torch.aten.{name}", [self._build.types.parse(INT)], operands).result


Step = Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value]]
"""Takes the iteration index and the carried values, and returns the new carried values."""


def counted_loop(build: NodeBuilder, count: ir.Value, initial: Sequence[ir.Value], step: Step) -> list[ir.Value]:
    """Emit a ``torch.prim.Loop`` of ``step`` for the indices 0 to ``count - 1``, without another exit condition.

    A value passed between iterations keeps its initial type. One step, or none, is emitted without a loop.
    """
    types = [value.type for value in initial]
    if (known := constant_of(count)) is not None and known <= 1:
        results = step(build.constant(0), [*initial]) if known == 1 else initial
        return [build.cast(value, type_) for value, type_ in zip(results, types, strict=True)]
    always = build.constant(True)
    loop = build.op("torch.prim.Loop", types, [count, always, *initial], regions=1)
    arguments = [build.types.parse("!torch.int"), *types]
    block = loop.regions[0].blocks.append(*arguments, arg_locs=[build.location] * len(arguments))
    with build.inside(block):
        index, *carried = list[ir.Value](block.arguments)
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
        if example.shape[0] == 1:
            return value
        end = build.op("torch.aten.add.int", [build.types.parse("!torch.int")], [index, one]).result
        operands = [stacked, value, zero, index, end, one]
        return build.op("torch.aten.slice_scatter", [build.types.of(example)], operands).result
