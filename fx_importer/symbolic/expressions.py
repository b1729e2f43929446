"""Arithmetic of symbolic dimensions as text of Python, in manifests: guards of an export and computed sizes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fx_importer.symbolic.arithmetic import Arithmetic

ONE, MORE = range(1, 2), range(2, 1000)
"""The numbers of arguments of a function of one, and of two or more."""
FUNCTIONS: Mapping[str, tuple[Callable[..., Any], range]] = {
    "max": (max, MORE),
    "min": (min, MORE),
    "abs": (abs, ONE),
    "round": (round, range(1, 3)),
    "float": (float, ONE),
    "math.ceil": (math.ceil, ONE),
    "math.floor": (math.floor, ONE),
    "math.trunc": (math.trunc, ONE),
}
"""The functions of expressions of sizes, with the numbers of arguments that they take."""
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
    """A number or a condition such as ``s0 % s1 == 0``, parsed once.

    It has arithmetic, comparisons and `FUNCTIONS`. The text, which may be of a file, is interpreted by `Arithmetic`.

    Raises:
        ValueError: if ``text`` is something else.
    """

    text: str
    symbols: frozenset[str] = field(init=False)
    """The names of the symbolic dimensions in it."""
    _arithmetic: Arithmetic = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or len(self.text) > _MAX_LENGTH:
            raise ValueError(f"an expression of sizes is text of at most {_MAX_LENGTH:,} characters")
        try:
            arithmetic = Arithmetic(ast.parse(self.text, mode="eval").body, _symbol, FUNCTIONS)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise ValueError(f"{self.text[:80]!r} is not an expression of sizes") from None
        object.__setattr__(self, "symbols", arithmetic.symbols)
        object.__setattr__(self, "_arithmetic", arithmetic)

    def value(self, sizes: Mapping[str, int]) -> float | None:
        """Return the number, or whether the condition holds, for ``sizes``; None for a division by 0."""
        try:
            return self._arithmetic.value(sizes)
        except (ArithmeticError, ValueError):
            return None

    def described(self, names: Mapping[str, str]) -> str:
        """Return the text with ``names`` of the symbols."""
        text = re.sub(r"\+ \(\(-1\)\*(\w+)\)", r"- \1", self.text)
        return re.sub(r"[A-Za-z_]\w*", lambda match_: names.get(match_[0], match_[0]), text)


def _symbol(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) and node.id not in FUNCTIONS and node.id != "math" else None
