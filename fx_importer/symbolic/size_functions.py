"""Names in the text of sizes of a ``.pt2`` file: functions of SymPy and of torch's extensions of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch.utils._sympy.functions as torch_functions
from sympy.functions.elementary.piecewise import ExprCondPair
from torch.utils._sympy.numbers import int_oo

CONSTANTS = {
    "true": sympy.true,
    "false": sympy.false,
    "True": sympy.true,
    "False": sympy.false,
    "oo": sympy.oo,
    "int_oo": int_oo,
}
ASSUMPTIONS = frozenset(
    (
        *("commutative", "complex", "even", "extended_real", "finite", "hermitian", "infinite", "integer", "negative"),
        *("nonnegative", "nonpositive", "nonzero", "odd", "positive", "rational", "real", "zero"),
    )
)
_OF_SYMPY = (
    *("Abs", "Add", "And", "Eq", "Equality", "Ge", "GreaterThan", "Gt", "Le", "LessThan", "Lt", "Max", "Min", "Mul"),
    *("Ne", "Not", "Or", "Piecewise", "StrictGreaterThan", "StrictLessThan", "Unequality", "ceiling", "floor", "sqrt"),
)
_OF_TORCH = (
    *("CeilDiv", "CeilToInt", "CleanDiv", "FloatPow", "FloatTrueDiv", "FloorDiv", "FloorToInt", "Identity"),
    *("IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "LShift", "Mod", "ModularIndexing", "PowByNatural"),
    *("PythonMod", "RShift", "RoundDecimal", "RoundToInt", "ToFloat", "TruncToFloat", "TruncToInt", "Where"),
)
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in _OF_SYMPY},
    "ExprCondPair": ExprCondPair,
    **{name: getattr(torch_functions, name) for name in _OF_TORCH},
}
"""Functions in sizes. Torch's Max and Min are SymPy's in files, as torch.export.load reads them."""
INTEGER_ARGUMENTS = frozenset(
    (
        *("CeilDiv", "CleanDiv", "FloorDiv", "IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "LShift", "Mod"),
        *("ModularIndexing", "PowByNatural", "PythonMod", "RShift", "//", "%"),
    )
)
INTEGER_RESULTS = frozenset(("CeilToInt", "FloorToInt", "RoundToInt", "TruncToInt", "ceiling", "floor"))
FLOAT_RESULTS = frozenset(("FloatPow", "FloatTrueDiv", "IntTrueDiv", "RoundDecimal", "ToFloat", "sqrt", "/"))
SHIFTS = ("LShift", "RShift")
OF_BOOLEANS = frozenset(("And", "Or", "Not", "&", "|", "~"))
OF_BOTH = frozenset(("Piecewise", "ExprCondPair", "Where", "Eq", "Ne", "Equality", "Unequality", "==", "!="))
