"""Arithmetic on symbolic sizes and other scalars, in the torch dialect's scalar operations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fx_importer.bindings import ir
from fx_importer.importing.builder import NodeBuilder, Refused

INT, FLOAT, BOOL = "!torch.int", "!torch.float", "!torch.bool"


class Scalars:
    """The scalar operations of the torch dialect on values, with integers promoted to floats where Python does."""

    def __init__(self, build: NodeBuilder):
        self._build = build

    def emit(self, name: str, result: str, *operands: ir.Value) -> ir.Value:
        """Append ``torch.<name>``."""
        return self._build.op(f"torch.{name}", [self._build.types.parse(result)], operands).result

    def constant(self, value: Any) -> ir.Value:
        return self._build.constant(value)

    def as_float(self, x: ir.Value) -> ir.Value:
        return x if kind(x) == FLOAT else self.emit("aten.Float.Scalar", FLOAT, self.as_number(x))

    def as_number(self, x: ir.Value) -> ir.Value:
        return self.emit("aten.Int.bool", INT, x) if kind(x) == BOOL else x

    def as_int(self, x: ir.Value) -> ir.Value:
        """Truncate towards zero, as ``int`` does."""
        return self.emit("aten.Int.float", INT, x) if kind(x) == FLOAT else self.as_number(x)

    def as_bool(self, x: ir.Value) -> ir.Value:
        if kind(x) == BOOL:
            return x
        return self.emit("aten.Bool.int" if kind(x) == INT else "aten.Bool.float", BOOL, x)

    def arithmetic(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        a, b = self.as_number(a), self.as_number(b)
        if kind(a) == kind(b) == INT:
            return self.emit(f"aten.{name}.int", INT, a, b)
        return self.emit(f"aten.{name}.float", FLOAT, self.as_float(a), self.as_float(b))

    def truediv(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.emit("aten.div.float", FLOAT, self.as_float(a), self.as_float(b))

    def floordiv(self, a: ir.Value, b: ir.Value) -> ir.Value:
        self.integers("floor division", a, b)
        return self.emit("aten.floordiv.int", INT, a, b)

    def mod(self, a: ir.Value, b: ir.Value) -> ir.Value:
        self.integers("modulo", a, b)
        return self.emit("aten.remainder.int", INT, a, b)

    def integers(self, what: str, *operands: ir.Value) -> None:
        if any(kind(x) != INT for x in operands):
            raise Refused(f"{what} of {', '.join(kind(x) for x in operands)}: the torch dialect has it for ints only")

    def negative(self, x: ir.Value) -> ir.Value:
        x = self.as_number(x)
        return self.emit("aten.neg.int" if kind(x) == INT else "aten.neg.float", kind(x), x)

    def absolute(self, x: ir.Value) -> ir.Value:
        return self.emit("prim.abs.Scalar", kind(x), x)

    def ceil(self, x: ir.Value) -> ir.Value:
        return self.emit("aten.ceil.float", INT, x) if kind(x) == FLOAT else self.as_number(x)

    def floor(self, x: ir.Value) -> ir.Value:
        # The dialect has ceil only: floor(x) = -ceil(-x).
        return self.negative(self.ceil(self.negative(x))) if kind(x) == FLOAT else self.as_number(x)

    def compare(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        if kind(a) == kind(b) == BOOL and name in ("eq", "ne"):
            return self.emit(f"aten.{name}.bool", BOOL, a, b)
        a, b = self.as_number(a), self.as_number(b)
        if kind(a) == kind(b) == INT:
            return self.emit(f"aten.{name}.int", BOOL, a, b)
        a, b = self.as_float(a), self.as_float(b)
        if name == "le":  # the dialect has no le.float
            return self.emit("aten.ge.float", BOOL, b, a)
        if name == "ne":  # nor ne.float
            return self.invert(self.emit("aten.eq.float", BOOL, a, b))
        return self.emit(f"aten.{name}.float", BOOL, a, b)

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.emit("aten.__and__.bool", BOOL, self.as_bool(a), self.as_bool(b))

    def either(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.emit("aten.__or__.bool", BOOL, self.as_bool(a), self.as_bool(b))

    def invert(self, x: ir.Value) -> ir.Value:
        return self.emit("aten.__not__", BOOL, self.as_bool(x))

    def extreme(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        self.integers(name, a, b)
        return self.emit(f"prim.{name}.int", INT, a, b)

    def power(self, a: ir.Value, b: ir.Value) -> ir.Value:
        exponent = constant_int(b)
        if kind(a) == INT and exponent is not None and 0 <= exponent <= 16:
            result = self.constant(1)
            for _ in range(exponent):
                result = a if constant_int(result) == 1 else self.emit("aten.mul.int", INT, result, a)
            return result
        if kind(a) == INT and kind(b) == FLOAT:
            return self.emit("aten.pow.int_float", FLOAT, a, b)
        raise Refused(f"{kind(a)} to the power of {kind(b)}: only small constant or float exponents of ints are known")

    def square_root(self, x: ir.Value) -> ir.Value:
        self.integers("square root", x)
        return self.emit("aten.sqrt.int", FLOAT, x)


def kind(value: ir.Value) -> str:
    """Return the spelling of a scalar's type."""
    return str(value.type)


def constant_int(value: ir.Value) -> int | None:
    """Return what a ``torch.constant.int`` holds."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.constant.int":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value


SYMBOLIC_FUNCTIONS: dict[Any, Callable[..., ir.Value]] = {
    operator.add: lambda s, a, b: s.arithmetic("add", a, b),
    operator.sub: lambda s, a, b: s.arithmetic("sub", a, b),
    operator.mul: lambda s, a, b: s.arithmetic("mul", a, b),
    operator.truediv: Scalars.truediv,
    operator.floordiv: Scalars.floordiv,
    operator.mod: Scalars.mod,
    operator.pow: Scalars.power,
    operator.neg: Scalars.negative,
    operator.pos: lambda s, x: x,
    operator.abs: Scalars.absolute,
    operator.lt: lambda s, a, b: s.compare("lt", a, b),
    operator.le: lambda s, a, b: s.compare("le", a, b),
    operator.gt: lambda s, a, b: s.compare("gt", a, b),
    operator.ge: lambda s, a, b: s.compare("ge", a, b),
    operator.eq: lambda s, a, b: s.compare("eq", a, b),
    operator.ne: lambda s, a, b: s.compare("ne", a, b),
    operator.and_: Scalars.both,
    operator.or_: Scalars.either,
    operator.not_: Scalars.invert,
    math.ceil: Scalars.ceil,
    math.floor: Scalars.floor,
    math.trunc: Scalars.as_int,
    math.sqrt: Scalars.square_root,
    torch.sym_float: Scalars.as_float,
    torch.sym_int: Scalars.as_int,
    torch.sym_not: Scalars.invert,
    torch.sym_max: lambda s, a, b: s.extreme("max", a, b),
    torch.sym_min: lambda s, a, b: s.extreme("min", a, b),
    torch._sym_sqrt: Scalars.square_root,  # pyright: ignore[reportAttributeAccessIssue]
}
"""How each Python function on symbolic scalars is spelled."""


def import_symbolic(node: fx.Node, build: NodeBuilder) -> ir.Value:
    """Import arithmetic, a comparison or a conversion of symbolic scalars.

    Raises:
        Refused: where the torch dialect has no scalar operation for these types.
    """
    return SYMBOLIC_FUNCTIONS[node.target](Scalars(build), *build.values(node.args))
