"""Compares two programs node by node, from results to inputs."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols


def differences(a: ExportedProgram, b: ExportedProgram) -> list[str]:
    """Return the first difference between ``a`` and ``b`` per result. Sizes are compared by value, not by how they
    are computed.
    """
    ours, theirs = (program.graph.output_node().args[0] for program in (a, b))
    names = [[spec.kind for spec in program.graph_signature.output_specs] for program in (a, b)]
    if names[0] != names[1]:
        return [f"results {names[0]} and {names[1]}"]
    pairs = _GraphComparison(a, b)
    found = [pairs.difference(x, y) for x, y in zip(ours, theirs, strict=True)]  # type: ignore[call-overload]
    return [each for each in found if each]


class _GraphComparison:
    def __init__(self, a: ExportedProgram, b: ExportedProgram):
        self._tensors_of_inputs = [_tensors_of_inputs(program) for program in (a, b)]
        self._seen: dict[tuple[fx.Node, fx.Node], str] = {}
        self._symbols: dict[sympy.Symbol, sympy.Symbol] = {}

    def difference(self, a: Any, b: Any) -> str:
        if isinstance(a, fx.Node) and isinstance(b, fx.Node):
            if (a, b) not in self._seen:
                self._seen[a, b] = self._nodes(a, b)
            return self._seen[a, b]
        a, b = (each.meta["val"] if isinstance(each, fx.Node) else each for each in (a, b))
        if isinstance(a, tuple | list) and isinstance(b, tuple | list):
            if len(a) != len(b):
                return f"{a} and {b}"
            return next(filter(None, map(self.difference, a, b)), "")
        if isinstance(a, SymInt | SymFloat | SymBool) and isinstance(b, SymInt | SymFloat | SymBool):
            return "" if self._map_expression(a.node.expr) == b.node.expr else f"{a} and {b}"
        same = type(a) is type(b) and (a == b or (a != a and b != b))
        return "" if same else f"{a!r} and {b!r}"

    def _map_expression(self, a: Any) -> Any:
        return a.subs(self._symbols) if self._symbols else a

    def _nodes(self, a: fx.Node, b: fx.Node) -> str:
        if isinstance(a.meta.get("val"), SymInt | SymFloat | SymBool):
            return self.difference(a.meta["val"], b.meta.get("val"))
        where = f"{a.name} and {b.name}: "
        if a.op != b.op:
            return f"{where}{a.op} {a.target} and {b.op} {b.target}"
        if a.op == "placeholder":
            mine, other = (
                each.get(node.name, node.name) for each, node in zip(self._tensors_of_inputs, (a, b), strict=True)
            )
            if isinstance(mine, Tensor) and isinstance(other, Tensor):
                return "" if mine is other or torch.equal(mine, other) else f"{where}other constants"
            return "" if mine == other else f"{where}other inputs"
        if a.target != b.target:
            return f"{where}{a.target} and {b.target}"
        kwargs = [{k: v for k, v in node.kwargs.items() if v is not None} for node in (a, b)]
        if kwargs[0].keys() != kwargs[1].keys():
            return f"{where}{kwargs[0]} and {kwargs[1]}"
        args = [list(node.args) for node in (a, b)]
        inner = self.difference(*args) or self.difference(*([each[k] for k in kwargs[0]] for each in kwargs))
        if inner:
            return f"{inner}" if ": " in inner else f"{where}{a.args} and {b.args}: {inner}"
        types = [_type(node.meta.get("val")) for node in (a, b)]
        self._map_symbols(*types)
        if self.difference(*types):
            return f"{where}{a.target} of types {types[0]} and {types[1]}"
        return ""

    def _map_symbols(self, a: Any, b: Any) -> None:
        if isinstance(a, list) and isinstance(b, list):
            for x, y in zip(a, b, strict=False):
                self._map_symbols(x, y)
        elif isinstance(a, SymInt) and isinstance(b, SymInt):
            x, y = a.node.expr, b.node.expr
            unbacked = [free_unbacked_symbols(each) for each in (a, b)]
            if isinstance(x, sympy.Symbol) and isinstance(y, sympy.Symbol) and all(unbacked):
                self._symbols.setdefault(x, y)


def _type(value: Any) -> Any:
    if isinstance(value, Tensor):
        return [str(value.dtype), *value.shape]
    if isinstance(value, tuple | list):
        return [_type(each) for each in value]
    return str(type(value))


def _tensors_of_inputs(program: ExportedProgram) -> dict[str, Any]:
    mine = {**program.constants, **program.state_dict}
    signature = program.graph_signature
    return {spec.arg.name: mine.get(spec.target, spec.target) for spec in signature.input_specs if spec.target}
