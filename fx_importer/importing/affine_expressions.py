"""Symbolic sizes as affine expressions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import sympy
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod

from fx_importer.mlir.bindings import ir


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
