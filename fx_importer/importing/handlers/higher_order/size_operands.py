"""Symbolic sizes as values: read from a tensor with that size, or computed from other sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch import fx

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.mlir.bindings import ir

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
