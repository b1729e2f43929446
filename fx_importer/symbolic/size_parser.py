"""A parser of the sizes in a ``.pt2`` file: text of SymPy, which is never evaluated as Python.

Its grammar is calls of named functions, symbols, numbers and infix arithmetic, as `sympy.srepr` and ``str`` write
them. Length, nesting, numbers, and the size of the polynomials that SymPy would expand are bounded, so that building an
expression, and simplifying it, ends.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import sympy
from sympy.logic.boolalg import Boolean

from fx_importer.symbolic.size_functions import (
    ASSUMPTIONS,
    CONSTANTS,
    FLOAT_RESULTS,
    FUNCTIONS,
    INTEGER_ARGUMENTS,
    INTEGER_RESULTS,
    OF_BOOLEANS,
    OF_BOTH,
    SHIFTS,
)

MAX_LENGTH, MAX_DEPTH, MAX_PARTS = 20_000, 80, 1000
MAX_INTEGER = 2**64
_MAX_BITS = 4096
"""The most bits of a number that is computed while an expression is built."""
_MAX_EXPONENT, _MAX_TERMS, _MAX_DEGREE = 64, 256, 64
_MAX_PRECISION = 256

_TOKEN = re.compile(
    r"\s*(?:(?P<float>\d+\.\d*(?:[eE][+-]?\d{1,3})?|\.\d+|\d+[eE][+-]?\d{1,3})|(?P<integer>\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|'(?P<text>[^'\\\n]*)'|(?P<sign>\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%<>&|~(),=]))",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]\w{0,255}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII)
_NUMBERED = re.compile(r"[A-Za-z_]*(\d*)", re.ASCII)
_MAX_DIGITS = 6
"""Digits of the number of a symbol: torch counts up to that number when it reads a file."""

_INFIX: Sequence[Mapping[str, Callable[[Any, Any], Any]]] = (
    {"|": operator.or_},
    {"&": operator.and_},
    {"==": sympy.Eq, "!=": sympy.Ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod},
)
"""Infix operators, from the loosest to the tightest. All of them group to the left."""
_PREFIX: Mapping[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


def parse_size(text: str, symbols: Mapping[str, sympy.Basic] | None = None) -> sympy.Basic:
    """Return the expression of sizes that ``text`` spells, with ``symbols`` by name where a name stands alone.

    Raises:
        ValueError: unless it is arithmetic of symbols and bounded numbers.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"it has {len(text):,} characters")
    try:
        return _Parser(text, symbols or {}).parse().expression
    except ValueError:
        raise
    except Exception as error:  # of SymPy, of any type
        raise ValueError(f"{type(error).__name__}: {str(error)[:200]}") from None


@dataclass(frozen=True)
class _Part:
    """A parsed expression, with bounds of the polynomial that it expands to."""

    expression: Any
    terms: int = 1
    degree: int = 1
    integral: bool = True
    """Whether all of it is written in integers; SymPy takes long for common divisors of fractions and floats."""

    def checked(self) -> _Part:
        if self.terms > (_MAX_TERMS if self.degree > 1 else MAX_PARTS) or self.degree > _MAX_DEGREE:
            raise ValueError("it is a polynomial of too many terms")
        number = self.expression
        if isinstance(number, sympy.Rational) and max(number.p.bit_length(), number.q.bit_length()) > _MAX_BITS:
            raise ValueError("it computes a number of too many digits")
        return self


class _Parser:
    """A recursive descent over the tokens of one text."""

    def __init__(self, text: str, symbols: Mapping[str, sympy.Basic]):
        self._symbols = symbols
        self._tokens: list[tuple[str, str]] = []
        self._at = self._depth = self._parts = 0
        end, text = 0, text.rstrip()
        while end < len(text):
            match = _TOKEN.match(text, end)
            if match is None:
                raise ValueError(f"{text[end : end + 20]!r} is not arithmetic")
            self._tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            end = match.end()

    def parse(self) -> _Part:
        part = self._infix(0)
        if self._at != len(self._tokens):
            raise ValueError(f"'{self._tokens[self._at][1]}' is not expected")
        return part

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise ValueError("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *signs: str) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at] in [("sign", sign) for sign in signs]:
            return self._next()[1]
        return None

    def _expect(self, sign: str) -> None:
        if self._accept(sign) is None:
            raise ValueError(f"'{sign}' is missing")

    def _infix(self, level: int) -> _Part:
        """Parse operators of ``level`` and tighter."""
        left = self._unary()
        while (tighter := self._level_of_next()) >= level:
            _, sign = self._next()
            left = _combined(_INFIX[tighter][sign], sign, [left, self._infix(tighter + 1)])
        return left

    def _level_of_next(self) -> int:
        kind, token = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        return next((at for at, signs in enumerate(_INFIX) if kind == "sign" and token in signs), -1)

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        yield
        self._depth -= 1

    def _unary(self) -> _Part:
        if sign := self._accept("-", "+", "~"):
            with self._nested():
                part = self._unary()
            return replace(_combined(_PREFIX[sign], sign, [part]), terms=part.terms)
        with self._nested():
            part = self._atom()
            return _power(part, self._unary()) if self._accept("**") else part

    def _atom(self) -> _Part:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ValueError(f"it has more than {MAX_PARTS} parts")
        kind, token = self._next()
        if kind == "integer":
            return _Part(sympy.Integer(_integer(token)), degree=0)
        if kind == "float":
            return _Part(_float(token), degree=0, integral=False)
        if kind == "name":
            return self._call(token) if self._accept("(") else self._name(token)
        if (kind, token) == ("sign", "("):
            part = self._infix(0)
            self._expect(")")
            return part
        raise ValueError(f"{token[:80]!r} is not expected")

    def _name(self, name: str) -> _Part:
        if name in CONSTANTS:
            return _Part(CONSTANTS[name])
        symbol = self._symbols.get(name)
        return _Part(sympy.Symbol(symbol_name(name)) if symbol is None else symbol)

    def _call(self, function: str) -> _Part:
        if function in ("Symbol", "Integer", "Float", "Rational"):
            return self._literal(function)
        if function != "Pow" and function not in FUNCTIONS:
            raise ValueError(f"'{function}' is not a function of sizes")
        arguments: list[_Part] = []
        if not self._accept(")"):
            arguments.append(self._infix(0))
            while self._accept(","):
                arguments.append(self._infix(0))
            self._expect(")")
        if function == "Pow":
            base, exponent = _of_count(2, arguments)
            return _power(base, exponent)
        if function in SHIFTS and not _is_small(_of_count(2, arguments)[1].expression):
            raise ValueError("it shifts by a number that is unknown or large")
        if function in ("PowByNatural", "RoundDecimal"):
            exponent = _of_count(2, arguments)[1].expression
            if not exponent.free_symbols and not _is_small(exponent):
                raise ValueError("it has a power whose exponent is large")
        return _combined(FUNCTIONS[function], function, arguments)

    def _literal(self, function: str) -> _Part:
        """Parse the arguments of a symbol or number, such as ``Symbol('s0', positive=True)``."""
        first, keywords = self._literal_argument(), {}
        second = None
        while self._accept(","):
            if self._tokens[self._at : self._at + 1] and self._tokens[self._at][0] == "name":
                key = self._next()[1]
                self._expect("=")
                keywords[key] = self._next()[1]
            else:
                second = self._literal_argument()
        self._expect(")")
        if function == "Symbol" and second is None and first[0] == "text":
            if not ASSUMPTIONS.issuperset(keywords) or not {"True", "False"}.issuperset(keywords.values()):
                raise ValueError("it has unknown assumptions of a symbol")
            assumed: Any = {key: value == "True" for key, value in keywords.items()}
            return _Part(sympy.Symbol(symbol_name(first[1]), **assumed))
        if function == "Float" and second is None and keywords.keys() <= {"precision"}:
            bits = _integer(keywords.get("precision", "53"))
            if not 1 <= bits <= _MAX_PRECISION:
                raise ValueError("it has a number of too many digits")
            return _Part(_float(first[1], bits), degree=0, integral=False)
        if function == "Integer" and second is None and not keywords and first[0] == "integer":
            return _Part(sympy.Integer(_integer(first[1])), degree=0)
        if function == "Rational" and second is not None and not keywords:
            numerator, denominator = _integer(first[1]), _integer(second[1])
            return _Part(sympy.Rational(numerator, denominator), degree=0, integral=False)
        raise ValueError(f"the arguments of '{function}' are not expected")

    def _literal_argument(self) -> tuple[str, str]:
        sign = self._accept("-") or ""
        kind, token = self._next()
        if kind not in ("integer", "float", "text") or (sign and kind == "text"):
            raise ValueError(f"{token[:80]!r} is not expected")
        return kind, sign + token


def symbol_name(name: str) -> str:
    """Return ``name``. Raises ValueError unless it can be the name of a symbol of torch."""
    number = _NUMBERED.match(name)
    if not _NAME.fullmatch(name) or (number and len(number[1]) > _MAX_DIGITS):
        raise ValueError(f"{name[:80]!r} is not the name of a symbol")
    return name


def _integer(text: str) -> int:
    if len(text) > 21 or abs(int(text)) > MAX_INTEGER:
        raise ValueError("it has a number of too many digits")
    return int(text)


def _float(text: str, bits: int = 53) -> sympy.Float:
    if len(text) > 100 or not _FLOAT.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(f"{text[:80]!r} is not a number")
    return sympy.Float(text, precision=bits)


def _of_count(count: int, arguments: list[_Part]) -> list[_Part]:
    if len(arguments) != count:
        raise ValueError(f"it has {len(arguments)} arguments where {count} are expected")
    return arguments


def _is_small(number: Any) -> bool:
    return bool(isinstance(number, sympy.Rational) and abs(number) <= _MAX_EXPONENT and number.q <= _MAX_EXPONENT)


def _power(base: _Part, exponent: _Part) -> _Part:
    power = exponent.expression
    if not _is_small(power) or not isinstance(base.expression, sympy.Expr):
        raise ValueError("it has a power whose exponent is unknown or large")
    whole = math.ceil(abs(power))
    terms = math.comb(whole + base.terms - 1, whole) if base.terms > 1 else 1
    bound = _Part(base.expression, terms, base.degree * whole).checked()
    number = base.expression
    if isinstance(number, sympy.Rational) and max(number.p.bit_length(), number.q.bit_length()) * whole > _MAX_BITS:
        raise ValueError("it computes a number of too many digits")
    integral = base.integral and exponent.integral and power >= 0
    return _Part(sympy.Pow(number, power), bound.terms, bound.degree, bool(integral)).checked()


def _combined(function: Callable[..., Any], name: str, arguments: list[_Part]) -> _Part:
    """Apply ``function``, after a check that its result is not too large."""
    if name in ("Add", "+", "-"):
        terms, degree = sum(part.terms for part in arguments), max((part.degree for part in arguments), default=0)
    elif name in ("Mul", "*", "/"):
        terms, degree = math.prod(part.terms for part in arguments), sum(part.degree for part in arguments)
    else:  # an atom of polynomials, whose arguments were checked
        terms, degree = 1, max((part.degree for part in arguments), default=1)
    _Part(None, terms, degree).checked()
    for part in arguments:
        if name not in OF_BOTH and not isinstance(part.expression, Boolean if name in OF_BOOLEANS else sympy.Expr):
            raise ValueError(f"'{name}' has conditions and numbers mixed up")
    integral = name not in FLOAT_RESULTS and all(part.integral for part in arguments)
    if name in INTEGER_ARGUMENTS and not all(part.integral for part in arguments):
        raise ValueError(f"'{name}' is of integers")
    expression = function(*[part.expression for part in arguments])
    return _Part(expression, terms, degree, integral or name in INTEGER_RESULTS).checked()
