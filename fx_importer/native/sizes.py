"""Expressions of sizes in C."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from fx_importer.errors import UsageError

_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "({} + {})",
    ast.Sub: "({} - {})",
    ast.Mult: "({} * {})",
    ast.FloorDiv: "fx_floor_div({}, {})",
    ast.Mod: "fx_mod({}, {})",
    ast.Eq: "({} == {})",
    ast.NotEq: "({} != {})",
    ast.Lt: "({} < {})",
    ast.LtE: "({} <= {})",
    ast.Gt: "({} > {})",
    ast.GtE: "({} >= {})",
}
_CALLS = {"max": "fx_max({}, {})", "min": "fx_min({}, {})"}
HELPERS = """
static inline int64_t fx_floor_div(int64_t a, int64_t b) { return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0; }
static inline int64_t fx_mod(int64_t a, int64_t b) { return b ? a - fx_floor_div(a, b) * b : 0; }
static inline int64_t fx_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t fx_min(int64_t a, int64_t b) { return a < b ? a : b; }
"""
"""Functions of C that the results of `in_c` call."""


def in_c(expression: int | str, names: Mapping[str, str]) -> str:
    """Return an expression of `Function.symbols` in C, with the ``names`` that symbols have there.

    Raises `UsageError` for arithmetic of floats, which sizes rarely need.
    """
    if isinstance(expression, int):
        return str(expression)
    return _emit(ast.parse(expression, mode="eval").body, names, expression)


def _emit(node: ast.expr, names: Mapping[str, str], text: str) -> str:
    emit = lambda inner: _emit(inner, names, text)  # noqa: E731
    match node:
        case ast.Constant(value=int() as number):
            return f"INT64_C({int(number)})" if abs(number) >= 1 << 31 else str(int(number))
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{emit(operand)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"(!{emit(operand)})"
        case ast.BoolOp(op=op, values=values):
            return f"({(' && ' if isinstance(op, ast.And) else ' || ').join(map(emit, values))})"
        case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int() as power)) if 1 < power < 8:
            return f"({' * '.join([emit(base)] * power)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)].format(emit(left), emit(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)].format(emit(left), emit(right))
        case ast.Call(func=ast.Name(id=name), args=[first, *rest]) if name in _CALLS:
            result = emit(first)
            for term in rest:
                result = _CALLS[name].format(result, emit(term))
            return result
        case ast.Call(func=ast.Name(id="abs"), args=[value]):
            return f"fx_max({emit(value)}, -{emit(value)})"
        case _:
            raise UsageError(f"the size '{text}' has arithmetic that C source of sizes does not have")
