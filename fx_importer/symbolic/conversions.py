"""Sizes of torch.export, which are SymPy expressions, as text, affine expressions, operations and integers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter

from fx_importer.mlir.bindings import ir
from fx_importer.symbolic.expressions import LinearSize, SizeExpression

LARGEST = 2**63 - 1


def to_text(expression: sympy.Basic) -> SizeExpression:
    """Return ``expression`` as text of Python.

    Raises:
        ValueError: if it has a function that `SizeExpression` lacks, such as a square root.
    """
    return SizeExpression(PythonPrinter().doprint(expression).replace("torch.sym_float(", "float("))


def to_linear(expression: sympy.Expr) -> LinearSize | None:
    """Return ``expression`` as a multiple of a symbol plus a constant; None if it is not one."""
    offset, term = expression.as_coeff_Add()
    factor, symbol = term.as_coeff_Mul()
    if not isinstance(symbol, sympy.Symbol) or not (offset.is_Integer and factor.is_Integer):
        return None
    return LinearSize(symbol.name, int(factor), int(offset))


def to_integer(bound: Any) -> int | None:
    """Return a bound of a size as an integer; None if it does not constrain a 64-bit integer."""
    if bound.is_infinite or not bound.is_Integer or not -LARGEST <= bound < LARGEST:
        return None
    return int(bound)


def to_operations(expression: Any, symbols: Mapping[Any, ir.Value], scalars: Any) -> ir.Value | None:
    """Emit operations that compute ``expression``; None if it has other symbols or an unsupported function.

    ``scalars`` emits arithmetic on numbers, as `ScalarOperators` of the importer does.
    """
    if not all(symbol in symbols for symbol in expression.free_symbols):
        return None
    try:
        return sympy_interp(_Arithmetic(scalars), dict(symbols), expression)
    except (AttributeError, KeyError):  # a function that `_Arithmetic` or torch's interpreter lacks
        return None


class _Arithmetic:
    """An analysis of `sympy_interp`."""

    def __init__(self, scalars: Any):
        self.add, self.mul = partial(scalars.arithmetic, "add"), partial(scalars.arithmetic, "mul")
        self.floordiv, self.mod, self.python_mod = scalars.floordiv, scalars.mod, scalars.mod
        self.truediv = self.int_truediv = scalars.truediv
        self.minimum, self.maximum = partial(scalars.extreme, "min"), partial(scalars.extreme, "max")
        self.eq, self.ne = partial(scalars.compare, "eq"), partial(scalars.compare, "ne")
        self.lt, self.le = partial(scalars.compare, "lt"), partial(scalars.compare, "le")
        self.gt, self.ge = partial(scalars.compare, "gt"), partial(scalars.compare, "ge")
        self.and_, self.or_ = partial(scalars.bitwise, "and"), partial(scalars.bitwise, "or")
        self.not_ = scalars.invert
        self._scalars = scalars

    def constant(self, value: Any, dtype: Any) -> ir.Value:
        convert = {torch.int64: int, torch.bool: bool}.get(dtype, float)
        return self._scalars.constant(convert(value))


class NotAffine(Exception):
    """An expression that is not affine, such as a product of symbols or a maximum."""


def to_affine(expression: sympy.Expr, positions: Mapping[sympy.Symbol, int], context: ir.Context) -> ir.AffineExpr:
    """Return ``expression`` with its symbols as ``s<position>``. Raises `NotAffine`."""

    def convert(part: sympy.Basic) -> ir.AffineExpr:
        if isinstance(part, sympy.Integer):
            return ir.AffineExpr.get_constant(int(part), context)
        if isinstance(part, sympy.Symbol):
            return ir.AffineExpr.get_symbol(positions[part], context)
        if isinstance(part, sympy.Add):
            return reduce(ir.AffineExpr.get_add, map(convert, part.args))
        if isinstance(part, sympy.Mul):
            if sum(not argument.is_number for argument in part.args) > 1:
                raise NotAffine(str(part))
            return reduce(ir.AffineExpr.get_mul, map(convert, part.args))
        if isinstance(part, (FloorDiv, CleanDiv, Mod, PythonMod)):
            dividend, divisor = part.args
            if not isinstance(divisor, sympy.Integer):
                raise NotAffine(str(part))
            make = ir.AffineExpr.get_floor_div if isinstance(part, FloorDiv) else ir.AffineExpr.get_mod
            return make(convert(dividend), convert(divisor))
        raise NotAffine(str(part))

    return convert(expression)
