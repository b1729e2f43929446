"""Arithmetic of symbolic dimensions as text of Python, in manifests: guards of an export and computed sizes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType

FUNCTIONS = {"max": max, "min": min, "abs": abs, "round": round, "float": float}
_ROUNDINGS = ("ceil", "floor", "trunc")
_FORMS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load)
_OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.Not, ast.And, ast.Or),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
_MAX_LENGTH = 20_000
_LINEAR = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<symbol>[A-Za-z_]\w*)(?: (?P<sign>[+-]) (?P<offset>\d+))?")


@dataclass(frozen=True)
class LinearSize:
    """A size that is ``factor * symbol + offset``, as `torch.export.Dim` can derive it: ``4*s0 + 1``."""

    symbol: str
    factor: int
    offset: int

    @classmethod
    def read(cls, text: str) -> LinearSize | None:
        """Return the size that ``text`` spells; None if it is not linear in one symbol."""
        match = _LINEAR.fullmatch(text)
        if match is None:
            return None
        offset = int(match["offset"] or 0) * (-1 if match["sign"] == "-" else 1)
        return cls(match["symbol"], int(match["factor"] or 1), offset)

    def of(self, number: int) -> int:
        """Return the size where the symbol is ``number``."""
        return self.factor * number + self.offset

    def solve(self, size: int) -> int | None:
        """Return the symbol's value where this is ``size``; None if that is not an integer."""
        number, rest = divmod(size - self.offset, self.factor)
        return None if rest else number


@dataclass(frozen=True)
class SizeExpression:
    """A number or a condition such as ``s0 % s1 == 0``, compiled once.

    It has arithmetic, comparisons, ``max``, ``min``, ``abs``, ``round``, ``float``, ``math.ceil``, ``math.floor`` and
    ``math.trunc``: the evaluation of text from a file calls nothing else.

    Raises:
        ValueError: if ``text`` is something else.
    """

    text: str
    symbols: frozenset[str] = field(init=False)
    """The names of the symbolic dimensions in it."""
    _code: CodeType = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or len(self.text) > _MAX_LENGTH:
            raise ValueError("no expression of sizes")
        try:
            tree = ast.parse(self.text, mode="eval")
            object.__setattr__(self, "symbols", frozenset(_symbols(tree)))
            object.__setattr__(self, "_code", compile(tree, "<sizes>", "eval"))
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise ValueError(f"{self.text[:80]!r} is no expression of sizes") from None

    def value(self, sizes: Mapping[str, int]) -> float | None:
        """Return the number, or whether the condition holds, for ``sizes``; None for a division by 0."""
        try:
            return eval(self._code, {"__builtins__": {}, "math": math, **FUNCTIONS}, dict(sizes))
        except (ArithmeticError, ValueError):
            return None

    def described(self, names: Mapping[str, str]) -> str:
        """Return the text with ``names`` of the symbols."""
        text = re.sub(r"\+ \(\(-1\)\*(\w+)\)", r"- \1", self.text)
        return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), text)


def _symbols(node: ast.AST) -> Iterator[str]:
    """Return the names in ``node``; raise ValueError unless it is arithmetic on them."""
    match node:
        case ast.Name(id=name) if name not in FUNCTIONS and name != "math":
            yield name
            return
        case ast.Constant(value=int() | float()):
            return
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in FUNCTIONS:
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr=name), args=parts, keywords=[]) if (
            name in _ROUNDINGS
        ):
            pass
        case _ if isinstance(node, _FORMS):
            parts = [each for each in ast.iter_child_nodes(node) if not isinstance(each, _OPERATORS)]
        case _:
            raise ValueError(f"{type(node).__name__} in an expression of sizes")
    for part in parts:
        yield from _symbols(part)
