"""Example values of nodes, as far as decomposition rules can depend on them; nodes that compute symbolic numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from fx_importer.decompositions.engine.local.rule_tracing import (
    RetraceRequired,
    SymbolicNumber,
    SymNumber,
    size_expression,
)
from fx_importer.fx_graph.operators import aten


def example_values(argument: Any, values: Mapping[fx.Node, Tensor]) -> Any:
    """Return ``argument`` with nodes replaced by example values; ``values`` take precedence."""
    if isinstance(argument, fx.Node):
        return values.get(argument, argument.meta["val"])
    if isinstance(argument, SymbolicNumber):
        return argument.number
    if isinstance(argument, tuple | list):
        items = [example_values(item, values) for item in argument]
        return tuple(items) if isinstance(argument, tuple) else items
    if isinstance(argument, dict):
        return {key: example_values(item, values) for key, item in argument.items()}
    return argument


def type_key(value: Tensor) -> Any:
    """Return all that a rule can depend on in a tensor: dtype, shape, strides, device and conjugation."""
    if type(value) is not FakeTensor:
        raise RetraceRequired(f"it takes a tensor of type {type(value).__name__}")
    if value.layout is not torch.strided:
        return id(value)
    shape, strides = tuple(value.shape), value.stride()
    if any(type(size) is not int for size in (*shape, *strides)):
        shape, strides = (tuple(map(size_expression, sizes)) for sizes in (shape, strides))
    complex_bits = value.dtype.is_complex and value.is_conj(), value.is_neg()
    return value.dtype, shape, strides, size_expression(value.storage_offset()), value.device, complex_bits


def has_type_of(result: Any, value: Any) -> bool:
    """Return whether the result of a rule has the type that the exported node has."""
    if isinstance(value, tuple | list):
        return isinstance(result, tuple | list) and all(map(has_type_of, result, value)) and len(result) == len(value)
    if isinstance(value, Tensor):
        example = result.meta["val"] if isinstance(result, fx.Node) else None
        return isinstance(example, Tensor) and same_type(example, value) and example.layout == value.layout
    if isinstance(value, SymNumber):
        return (result.number.node.expr if isinstance(result, SymbolicNumber) else result) == value.node.expr
    return value is None or result == value


def same_type(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same dtype, and shapes that are equal by the guards, without adding one."""
    return a.dtype == b.dtype and a.dim() == b.dim() and all(map(_same_size, a.shape, b.shape))


def _same_size(a: int | SymInt, b: int | SymInt) -> bool:
    return size_expression(a) == size_expression(b) or statically_known_true(a == b)


def keep_exported_types(result: Any, value: Any, values: Mapping[fx.Node, Any], steps: frozenset[fx.Node]) -> None:
    """Give results the example values of the exported node, with the strides that later nodes were traced with."""
    if isinstance(result, fx.Node) and isinstance(value, Tensor):
        if result in steps:
            values[result].meta["val"] = value
    elif isinstance(result, tuple | list) and isinstance(value, tuple | list):
        for item, type_ in zip(result, value, strict=True):
            keep_exported_types(item, type_, values, steps)


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
