"""Arithmetic on symbolic sizes and other scalars: the operation for each Python function."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fx_importer.importing.handlers.scalar_operators import ScalarOperators
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir

_MATH = {
    f"_sym_{name}": f"aten.{name}"
    for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
}
"""torch's names of ``math`` functions on symbolic numbers, and the corresponding tensor operation."""


def _on_floats(name: str) -> Callable[[ScalarOperators, ir.Value], ir.Value]:
    return lambda s, x: s.on_floats(name, x)


SYMBOLIC_FUNCTIONS: dict[Any, Callable[..., ir.Value]] = {
    operator.add: lambda s, a, b: s.arithmetic("add", a, b),
    operator.sub: lambda s, a, b: s.arithmetic("sub", a, b),
    operator.mul: lambda s, a, b: s.arithmetic("mul", a, b),
    operator.truediv: ScalarOperators.truediv,
    operator.floordiv: ScalarOperators.floordiv,
    operator.mod: ScalarOperators.mod,
    operator.pow: ScalarOperators.power,
    operator.lshift: ScalarOperators.shift_left,
    operator.rshift: ScalarOperators.shift_right,
    operator.neg: ScalarOperators.negative,
    operator.pos: ScalarOperators.as_number,
    operator.abs: ScalarOperators.absolute,
    operator.lt: lambda s, a, b: s.compare("lt", a, b),
    operator.le: lambda s, a, b: s.compare("le", a, b),
    operator.gt: lambda s, a, b: s.compare("gt", a, b),
    operator.ge: lambda s, a, b: s.compare("ge", a, b),
    operator.eq: lambda s, a, b: s.compare("eq", a, b),
    operator.ne: lambda s, a, b: s.compare("ne", a, b),
    operator.and_: lambda s, a, b: s.bitwise("and", a, b),
    operator.or_: lambda s, a, b: s.bitwise("or", a, b),
    operator.xor: lambda s, a, b: s.bitwise("xor", a, b),
    operator.not_: ScalarOperators.invert,
    round: ScalarOperators.round,
    math.ceil: ScalarOperators.ceil,
    math.floor: ScalarOperators.floor,
    math.trunc: ScalarOperators.as_int,
    math.sqrt: _on_floats("aten.sqrt"),
    torch.sym_float: ScalarOperators.as_float,
    torch.sym_int: ScalarOperators.as_int,
    torch.sym_not: ScalarOperators.invert,
    torch.sym_ite: ScalarOperators.choose,
    torch.sym_max: lambda s, a, b: s.extreme("max", a, b),
    torch.sym_min: lambda s, a, b: s.extreme("min", a, b),
    torch.sym_sum: ScalarOperators.total,
    **{getattr(torch, function): _on_floats(name) for function, name in _MATH.items()},
}
"""The name of the operation for each Python function on symbolic scalars."""


def import_symbolic(node: fx.Node, build: NodeBuilder) -> ir.Value:
    """Import arithmetic, a comparison or a conversion of symbolic scalars.

    Raises:
        UnsupportedNodeError: if Python or the torch dialect lacks the operation on these types.
    """
    operands = [build.values(x) if isinstance(x, (list, tuple)) else build.value(x) for x in node.args]
    return SYMBOLIC_FUNCTIONS[node.target](ScalarOperators(build), *operands)
