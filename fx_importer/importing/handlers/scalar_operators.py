"""Python's arithmetic on ints, floats and bools, in scalar operations of the torch dialect that can be lowered.

Where the dialect has no operation, or one that nothing lowers (``prim.abs.Scalar``, ``aten.Int.float``,
``aten.lt.float``, ``aten.__not__``), or one that computes something else (``aten.remainder.int`` of a negative number),
it is composed of others, or computed on rank-0 tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.mlir.bindings import ir

INT, FLOAT, BOOL = "!torch.int", "!torch.float", "!torch.bool"

_UNROLLED = 16
"""Largest constant exponent for which a power of an integer is unrolled."""


class ScalarOperators:
    """Scalar operations on values, with Python's promotion of bools to integers and of integers to floats."""

    def __init__(self, build: NodeBuilder):
        self._build = build

    def emit(self, name: str, result: str, *operands: ir.Value) -> ir.Value:
        """Append ``torch.<name>``."""
        return self._build.op(f"torch.{name}", [self._build.types.parse(result)], operands).result

    def constant(self, value: Any) -> ir.Value:
        return self._build.constant(value)

    # --- conversions ------------------------------------------------------------------------------------------------

    def as_float(self, x: ir.Value) -> ir.Value:
        return x if kind(x) == FLOAT else self.emit("aten.Float.Scalar", FLOAT, self.as_number(x))

    def as_number(self, x: ir.Value) -> ir.Value:
        return self.emit("aten.Int.bool", INT, x) if kind(x) == BOOL else x

    def as_int(self, x: ir.Value) -> ir.Value:
        """Truncate towards zero, as ``int`` does."""
        return self.ceil(self.on_tensors("aten.trunc", x)) if kind(x) == FLOAT else self.as_number(x)

    def as_bool(self, x: ir.Value) -> ir.Value:
        return x if kind(x) == BOOL else self.compare("ne", x, self.constant(0))

    def on_tensors(self, name: str, *operands: ir.Value) -> ir.Value:
        """Compute ``torch.<name>`` of numbers of one type on rank-0 tensors. The result has that type."""
        types, scalar = self._build.types, kind(operands[0])
        dtype, read = (torch.float64, "Float") if scalar == FLOAT else (torch.int64, "Int")
        type_ = types.tensor(dtype, ())
        tensors = [self._build.op("torch.prim.NumToTensor.Scalar", [type_], [x]).result for x in operands]
        result = self._build.op(f"torch.{name}", [type_], tensors).result
        return self.emit(f"aten.{read}.Tensor", scalar, result)

    def on_floats(self, name: str, *operands: ir.Value) -> ir.Value:
        return self.on_tensors(name, *map(self.as_float, operands))

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def arithmetic(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        a, b = self.as_number(a), self.as_number(b)
        if kind(a) == kind(b) == INT:
            return self.emit(f"aten.{name}.int", INT, a, b)
        return self.emit(f"aten.{name}.float", FLOAT, self.as_float(a), self.as_float(b))

    def total(self, operands: Sequence[ir.Value]) -> ir.Value:
        result = self.constant(0)
        for operand in operands:
            result = self.arithmetic("add", result, operand)
        return result

    def truediv(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.emit("aten.div.float", FLOAT, self.as_float(a), self.as_float(b))

    def floordiv(self, a: ir.Value, b: ir.Value) -> ir.Value:
        a, b = self.as_number(a), self.as_number(b)
        if kind(a) == kind(b) == INT:
            return self.emit("aten.floordiv.int", INT, a, b)
        return self.on_floats("aten.floor", self.truediv(a, b))

    def mod(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a - a // b * b``, which has the sign of ``b``."""
        return self.arithmetic("sub", a, self.arithmetic("mul", self.floordiv(a, b), b))

    def negative(self, x: ir.Value) -> ir.Value:
        x = self.as_number(x)
        return self.emit("aten.neg.int" if kind(x) == INT else "aten.neg.float", kind(x), x)

    def absolute(self, x: ir.Value) -> ir.Value:
        return self.on_tensors("aten.abs", self.as_number(x))

    def power(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a ** b``. Integers are multiplied in a loop if the exponent is variable: floats would round.

        A variable exponent of an integer is not negative: torch guards on this when it traces.
        """
        a, b = self.as_number(a), self.as_number(b)
        if kind(a) == kind(b) == INT:
            exponent = constant_int(b)
            if exponent is None or exponent > _UNROLLED:
                build, always = self._build, self.constant(True)
                int_ = build.types.parse(INT)
                loop = build.op("torch.prim.Loop", [int_], [b, always, self.constant(1)], regions=1)
                block = loop.regions[0].blocks.append(int_, int_, arg_locs=[build.location] * 2)
                with build.inside(block):
                    product = self.emit("aten.mul.int", INT, block.arguments[1], a)
                    build.op("torch.prim.Loop.condition", [], [always, product])
                return loop.result
            if exponent >= 0:
                result = self.constant(1)
                for turn in range(exponent):
                    result = a if turn == 0 else self.emit("aten.mul.int", INT, result, a)
                return result
        return self.on_floats("aten.pow.Tensor_Tensor", a, b)

    def shift_left(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.arithmetic("mul", a, self._power_of_two(b))

    def shift_right(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return ``a // 2**b``, also for a negative ``a``."""
        return self.floordiv(a, self._power_of_two(b))

    def _power_of_two(self, exponent: ir.Value) -> ir.Value:
        known = constant_int(exponent)
        return self.power(self.constant(2), exponent) if known is None else self.constant(2**known)

    # --- roundings --------------------------------------------------------------------------------------------------

    def ceil(self, x: ir.Value) -> ir.Value:
        return self.emit("aten.ceil.float", INT, x) if kind(x) == FLOAT else self.as_number(x)

    def floor(self, x: ir.Value) -> ir.Value:
        # The dialect has ceil only: floor(x) = -ceil(-x).
        return self.negative(self.ceil(self.negative(x))) if kind(x) == FLOAT else self.as_number(x)

    def round(self, x: ir.Value, digits: ir.Value | None = None) -> ir.Value:
        """Round half to even, as Python does."""
        if digits is None or kind(digits) == "!torch.none":
            return self.ceil(self.on_tensors("aten.round", x)) if kind(x) == FLOAT else self.as_number(x)
        count = constant_int(digits)
        if count is None:
            raise UnsupportedNodeError("a number is rounded to a number of digits that is not constant")
        scale = self.constant(10.0 ** abs(count))
        scaled = self.arithmetic("mul", x, scale) if count >= 0 else self.truediv(x, scale)
        rounded = self.on_tensors("aten.round", scaled)
        result = self.truediv(rounded, scale) if count >= 0 else self.arithmetic("mul", rounded, scale)
        return result if kind(x) == FLOAT else self.as_int(result)

    # --- comparisons and logic --------------------------------------------------------------------------------------

    def compare(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        a, b = self.as_number(a), self.as_number(b)
        if kind(a) == kind(b) == INT:
            return self.emit(f"aten.{name}.int", BOOL, a, b)
        a, b = self.as_float(a), self.as_float(b)
        if name == "ne":  # the dialect has no ne.float
            return self.invert(self.emit("aten.eq.float", BOOL, a, b))
        if name in ("le", "lt"):  # the dialect has no le.float either, and its lt.float has no lowering
            return self.emit("aten.ge.float" if name == "le" else "aten.gt.float", BOOL, b, a)
        return self.emit(f"aten.{name}.float", BOOL, a, b)

    def bitwise(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return the bitwise ``and``, ``or`` or ``xor`` of two integers or of two bools."""
        if kind(a) == kind(b) == BOOL:
            return self.compare("ne", a, b) if name == "xor" else self.emit(f"aten.__{name}__.bool", BOOL, a, b)
        if FLOAT in (kind(a), kind(b)):
            raise UnsupportedNodeError(f"'{name}' of the bits of {kind(a)} and {kind(b)}: Python has it for ints only")
        return self.on_tensors(f"aten.bitwise_{name}.Tensor", self.as_number(a), self.as_number(b))

    def invert(self, x: ir.Value) -> ir.Value:
        return self.compare("eq", x, self.constant(0))

    def extreme(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        a, b = self.as_number(a), self.as_number(b)
        if kind(a) == kind(b) == INT:
            return self.emit(f"prim.{name}.int", INT, a, b)
        return self.on_floats(f"aten.{name}imum", a, b)

    def choose(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        if kind(a) != kind(b):
            raise UnsupportedNodeError(f"a choice between {kind(a)} and {kind(b)} has no type")
        chosen = self._build.op("torch.prim.If", [a.type], [self.as_bool(condition)], regions=2)
        for region, value in zip(chosen.regions, (a, b), strict=True):
            with self._build.inside(region.blocks.append()):
                self._build.op("torch.prim.If.yield", [], [value])
        return chosen.result


def kind(value: ir.Value) -> str:
    """Return the name of a scalar's type."""
    return str(value.type)


def constant_int(value: ir.Value) -> int | None:
    """Return the value of a ``torch.constant.int``."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.constant.int":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value
