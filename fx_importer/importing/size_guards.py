"""Guards of export on the sizes of inputs, as assertions at the start of the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from fx_importer.importing.handlers.assertions import assert_range
from fx_importer.importing.handlers.scalar_operators import ScalarOperators
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir
from fx_importer.symbolic.conversions import to_integer, to_linear, to_operations


class InputGuards:
    """Assertions on dynamic input sizes: ranges, equality of sizes with the same expression, and other guards."""

    def __init__(self, build: NodeBuilder, ranges: Mapping[Any, Any], guards: Sequence[sympy.Basic]):
        """``ranges`` is ``ExportedProgram.range_constraints``, ``guards`` is ``guards_of(program)``."""
        self._build = build
        self._ranges = ranges
        self._guards = guards
        self._seen: dict[sympy.Basic, tuple[str, ir.Value]] = {}

    def emit(self, arguments: Sequence[tuple[str, fx.Node]]) -> None:
        """Assert the guards on ``arguments``, which come with the names that users gave them."""
        sizes: list[tuple[sympy.Expr, str, ir.Value]] = []
        for name, node in arguments:
            example = node.meta.get("val")
            for axis, size in enumerate(example.shape if isinstance(example, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and not isinstance(size.node.expr, sympy.Integer):
                    sizes.append((size.node.expr, f"size {axis} of '{name}'", self._size(node, axis)))
        for expression, name, value in sorted(sizes, key=lambda size: not isinstance(size[0], sympy.Symbol)):
            self._check_size(expression, name, value)
        for guard in self._guards:
            if (holds := self._compute(guard)) is not None:
                self._build.runtime_assert(holds, f"{self._words(guard)} is false")

    def _check_size(self, expression: sympy.Expr, name: str, value: ir.Value) -> None:
        build = self._build
        first = self._seen.setdefault(expression, (name, value))
        if first[1] is not value:
            self._equal(value, first[1], f"{name} is not equal to {first[0]}")
            return
        if limits := self._ranges.get(expression):
            assert_range(build, value, name, to_integer(limits.lower), to_integer(limits.upper))
        known = self._compute(expression)
        if known is None:
            self._solve(expression, name, value)
        elif known is not value:
            self._equal(value, known, f"{name} is not {self._words(expression)}")

    def _solve(self, expression: sympy.Expr, name: str, value: ir.Value) -> None:
        """Solve for the symbol if ``value`` is a multiple of it plus a constant, since other sizes may use it."""
        build = self._build
        form = to_linear(expression)
        if form is None:
            return
        factor, offset = form.factor, form.offset
        (symbol,) = expression.free_symbols
        multiple = self._emit("sub.int", value, build.constant(offset)) if offset else value
        quotient = self._emit("floordiv.int", multiple, build.constant(factor))
        self._seen[symbol] = (f"{name}, less {offset}, by {factor}" if offset else f"{name}, by {factor}", quotient)
        if factor != 1:
            whole = self._emit("mul.int", quotient, build.constant(factor))
            kind = f"a multiple of {factor}" + (f", plus {offset}" if offset else "")
            self._equal(multiple, whole, f"{name} is not {kind}")

    def _compute(self, expression: sympy.Basic) -> ir.Value | None:
        names = {str(symbol): value for symbol, (_, value) in self._seen.items()}
        symbols = {symbol: names[str(symbol)] for symbol in expression.free_symbols if str(symbol) in names}
        return to_operations(expression, symbols, ScalarOperators(self._build))

    def _words(self, expression: sympy.Basic) -> str:
        """Return ``expression`` as text, with the sizes that define its symbols."""
        names = {str(symbol): sympy.Symbol(f"({name})") for symbol, (name, _) in self._seen.items()}
        return str(expression.xreplace({symbol: names[str(symbol)] for symbol in expression.free_symbols}))

    def _equal(self, a: ir.Value, b: ir.Value, message: str) -> None:
        equal = self._build.op("torch.aten.eq.int", [self._build.types.parse("!torch.bool")], [a, b]).result
        self._build.runtime_assert(equal, message)

    def _size(self, node: fx.Node, axis: int) -> ir.Value:
        return self._emit("size.int", self._build.value(node), self._build.constant(axis))

    def _emit(self, name: str, *operands: ir.Value) -> ir.Value:
        return self._build.op(f"torch.aten.{name}", [self._build.types.parse("!torch.int")], operands).result
