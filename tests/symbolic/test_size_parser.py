"""Sizes in files: read as torch.export.load reads them, in a bounded time."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import CeilToInt, FloorDiv, Mod, ToFloat, TruncToInt

from fx_importer.symbolic.size_parser import parse_size

S0 = sympy.Symbol("s0", positive=True, integer=True)
HALF: Any = FloorDiv(S0 - 1, 2)


@pytest.mark.parametrize(
    "size",
    [
        S0,
        2 * S0 + 1,
        sympy.Mul(4, HALF),
        sympy.Max(1, TruncToInt(sympy.Float(1.5) * ToFloat(S0))),
        sympy.Eq(Mod(S0, 2), 0),
        sympy.Piecewise((S0, S0 < 3), (0, True)),
        sympy.sqrt(S0),
        CeilToInt(sympy.Rational(1, 3) * ToFloat(S0)),
        S0**3 - sympy.Integer(2**63),
        sympy.true,
    ],
)
def test_text_of_srepr_is_read(size):
    assert parse_size(sympy.srepr(size)) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("s0**2 + 3*s0//2 - -4", S0**2 + sympy.floor(3 * S0 / 2) + 4),
        ("-s0**2", -(S0**2)),
        ("(s0 < 4) & ~(s0 <= 2)", sympy.And(S0 < 4, S0 > 2)),
        ("s0 - 1 - 2*s0 == 3", sympy.Eq(-1 - S0, 3)),
    ],
)
def test_infix_arithmetic_is_read(text, size):
    assert parse_size(text, {"s0": S0}) == size


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it ends too early"),
        ("s0 s1", "'s1' is not expected"),
        ("[s0]", "is not arithmetic"),
        ("Symbol('s0').func", "is not arithmetic"),
        ("Integer('3')", "the arguments of 'Integer'"),
        ("Symbol('u99999999999')", "is not the name of a symbol"),
        ("Symbol('s0', cls=True)", "unknown assumptions"),
        ("Float('1e400000')", "is not a number"),
        ("Integer(1" + "0" * 5000 + ")", "too many digits"),
        ("*".join(["18446744073709551616"] * 80), "too many digits"),
        ("Pow(Pow(Pow(s0, 64), 64), 64)", "too many terms"),
        ("*".join(["(a + b + c)"] * 8), "too many terms"),
        (" + ".join(["s0"] * 1001), "more than 1000 parts"),
        ("PowByNatural(Integer(2), Integer(9999999))", "whose exponent is large"),
        ("FloorDiv(Float('1.5'), Integer(2))", "'FloorDiv' is of integers"),
        ("Add(true, Integer(1))", "conditions and numbers mixed up"),
        ("FloorDiv(s0, 0)", "ZeroDivisionError"),
        ("x" * 20_001, "20,001 characters"),
    ],
)
def test_other_text_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_size(text, {"s0": S0})
