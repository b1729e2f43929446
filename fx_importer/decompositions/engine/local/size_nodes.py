"""Nodes that compute the symbolic numbers of a decomposition rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch.fx.node import map_arg
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from fx_importer.decompositions.engine.local.rule_tracing import RetraceRequired
from fx_importer.fx_graph.operators import aten


class _Calls(PythonReferenceAnalysis):
    """SymPy interpretation by FX calls, for functions of Python that do not accept proxies."""

    @staticmethod
    def trunc_to_int(x: Any, dtype: torch.dtype) -> Any:
        return _call(torch.sym_int, x)

    @staticmethod
    def floor_to_int(x: Any, dtype: torch.dtype) -> Any:
        return _call(math.floor, x)

    @staticmethod
    def ceil_to_int(x: Any, dtype: torch.dtype) -> Any:
        return _call(math.ceil, x)

    @staticmethod
    def int_truediv(a: Any, b: Any) -> Any:
        return a / b


def _call(function: Callable[[Any], Any], x: Any) -> Any:
    return x.tracer.create_proxy("call_function", function, (x,), {}) if isinstance(x, fx.Proxy) else function(x)


class SizeNodes:
    """The nodes of ``graph`` that compute symbolic numbers, by expression."""

    def __init__(self, graph: fx.Graph):
        self._graph = graph
        self._nodes: dict[sympy.Basic, fx.Node] = {}
        self._axes: dict[sympy.Basic, tuple[fx.Node, int]] = {}

    def remember(self, node: fx.Node) -> None:
        """Record the symbolic numbers that ``node`` computes, and the symbolic sizes of its result."""
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, SymInt):
                    self._axes.setdefault(size.node.expr, (node, axis))
        elif isinstance(value, SymInt | SymFloat | SymBool):
            self._nodes.setdefault(value.node.expr, node)

    def node_of(self, number: SymInt | SymFloat | SymBool) -> Any:
        """Return a node that computes ``number``, or a Python number if it is constant.

        Raises:
            RetraceRequired: if no tensor in the graph has a symbol of it as a size.
        """
        expression = number.node.expr
        if expression.is_number or expression in (sympy.true, sympy.false):
            kinds = {SymInt: int, SymFloat: float, SymBool: bool}
            return kinds[type(number)](expression)
        if (known := self._known(expression)) is not None:
            return known
        last = next(iter(reversed(self._graph.nodes)))
        tracer = GraphAppendingTracer(self._graph)
        symbols: dict[sympy.Symbol, Any] = {}
        for symbol in expression.free_symbols:
            assert isinstance(symbol, sympy.Symbol)
            if (node := self._known(symbol)) is None:
                raise RetraceRequired(f"its rule computes with {symbol}, which is the size of nothing")
            symbols[symbol] = fx.Proxy(node, tracer)
        try:
            made = sympy_interp(_Calls, symbols, expression).node
        except Exception as error:
            raise RetraceRequired(f"its rule computes with {expression}, which has no spelling: {error}") from error
        while (last := last.next) is not self._graph._root:
            if "val" not in last.meta:
                args = map_arg(last.args, lambda operand: operand.meta["val"])
                last.meta["val"] = last.target(*args)
                self.remember(last)
        self._nodes[expression] = made
        return made

    def _known(self, expression: sympy.Basic) -> fx.Node | None:
        size_node = self._nodes.get(expression)
        if size_node is None and expression in self._axes:
            node, axis = self._axes[expression]
            size_node = self._nodes[expression] = self._graph.call_function(aten.sym_size.int, (node, axis))
            size_node.meta["val"] = node.meta["val"].shape[axis]
        return size_node
