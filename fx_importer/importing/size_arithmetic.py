"""Expressions of symbolic sizes as scalar operations of the torch dialect."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch.utils._sympy.interp import sympy_interp

from fx_importer.importing.handlers.scalar_operators import ScalarOperators
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def emit_expression(build: NodeBuilder, expression: Any, symbols: Mapping[Any, ir.Value]) -> ir.Value | None:
    """Append what computes ``expression``; None for one of other symbols, or with other functions than these."""
    if not all(symbol in symbols for symbol in expression.free_symbols):
        return None
    try:
        return sympy_interp(_Arithmetic(ScalarOperators(build)), dict(symbols), expression)
    except (AttributeError, KeyError):  # a function that `_Arithmetic`, or torch's interpreter, does not have
        return None


class _Arithmetic:
    """An analysis of `sympy_interp`."""

    def __init__(self, scalars: ScalarOperators):
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
