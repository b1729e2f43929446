"""An interpreter of arithmetic in Python's syntax: text from a file is parsed, and never compiled or evaluated."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

_MOST_BITS = 4096
"""Bits of the largest power of integers."""


def _power(exponent: int, base: Any) -> Any:
    if isinstance(base, int) and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError(f"a power of more than {_MOST_BITS} bits")
    return base**exponent


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Not: operator.not_}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class _Step(Enum):
    """The effect of a step on the stack."""

    SYMBOL, CONSTANT, APPLY, AND, OR, BRANCH, JUMP = (auto() for _ in range(7))


class Arithmetic:
    """Arithmetic of symbols, numbers and named functions, as steps of a stack machine.

    Args:
        tree: the parsed text.
        symbol: returns the name of a symbol that a node stands for, None for other nodes.
        functions: the functions by name, such as ``max`` or ``math.ceil``, with the numbers of arguments they take.

    Raises:
        ValueError: if ``tree`` has something else.
        RecursionError: if it is nested too deeply.
    """

    def __init__(
        self,
        tree: ast.expr,
        symbol: Callable[[ast.expr], str | None],
        functions: Mapping[str, tuple[Callable[..., Any], range]],
    ):
        self._symbol, self._functions = symbol, functions
        self._steps: list[tuple[_Step, Any, int]] = []
        self._read(tree)
        self.symbols = frozenset(name for step, name, _ in self._steps if step is _Step.SYMBOL)
        """The names of the symbols in it."""

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the result for the ``values`` of the symbols. Errors of Python's operators are raised."""
        stack: list[Any] = []
        at = 0
        while at < len(self._steps):
            step, argument, number = self._steps[at]
            at += 1
            if step is _Step.SYMBOL:
                stack.append(values[argument])
            elif step is _Step.CONSTANT:
                stack.append(argument)
            elif step is _Step.APPLY:
                operands = stack[-number:]
                del stack[-number:]
                stack.append(argument(*operands))
            elif step is _Step.JUMP or (step is _Step.BRANCH and not stack.pop()):
                at = number
            elif step in (_Step.AND, _Step.OR):
                if bool(stack[-1]) is (step is _Step.OR):
                    at = number
                else:
                    stack.pop()
        return stack.pop()

    def _read(self, node: ast.expr) -> None:
        if (name := self._symbol(node)) is not None:
            self._add(_Step.SYMBOL, name)
            return
        match node:
            case ast.Constant(value=int() | float() as number):
                self._add(_Step.CONSTANT, number)
            case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=int(exponent))) if 2 <= exponent <= 4:
                self._apply(partial(_power, exponent), [left])
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
                self._apply(_BINARY[type(op)], [left, right])
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                self._apply(_UNARY[type(op)], [operand])
            case ast.Compare(ops=ops, left=left, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
                self._apply(_compared([_COMPARISONS[type(op)] for op in ops]), [left, *others])
            case ast.BoolOp(op=op, values=values):
                self._read_logic(_Step.AND if isinstance(op, ast.And) else _Step.OR, values)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._read(test)
                branch = self._add(_Step.BRANCH)
                self._read(body)
                jump = self._add(_Step.JUMP)
                self._land(branch)
                self._read(orelse)
                self._land(jump)
            case ast.Call(func=func, args=args, keywords=[]) if (name := ast.unparse(func)) in self._functions:
                function, accepted = self._functions[name]
                if len(args) not in accepted:
                    raise ValueError(f"'{name}' has {len(args)} arguments")
                self._apply(function, args)
            case _:
                raise ValueError(f"{type(node).__name__} in an expression of sizes")

    def _read_logic(self, step: _Step, values: Sequence[ast.expr]) -> None:
        jumps = []
        for value in values[:-1]:
            self._read(value)
            jumps.append(self._add(step))
        self._read(values[-1])
        for jump in jumps:
            self._land(jump)

    def _apply(self, function: Callable[..., Any], operands: Sequence[ast.expr]) -> None:
        for operand in operands:
            self._read(operand)
        self._add(_Step.APPLY, function, len(operands))

    def _add(self, step: _Step, argument: Any = None, number: int = 0) -> int:
        self._steps.append((step, argument, number))
        return len(self._steps) - 1

    def _land(self, jump: int) -> None:
        step, argument, _ = self._steps[jump]
        self._steps[jump] = step, argument, len(self._steps)


def _compared(comparisons: Sequence[Callable[[Any, Any], Any]]) -> Callable[..., Any]:
    if len(comparisons) == 1:
        return comparisons[0]

    def holds(*operands: Any) -> bool:
        pairs = zip(comparisons, operands, operands[1:], strict=False)
        return all(compare(left, right) for compare, left, right in pairs)

    return holds
