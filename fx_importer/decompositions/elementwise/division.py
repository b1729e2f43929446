"""Rules of division, remainders and reciprocals, with eager's rounding.

`remainder` has the sign of the divisor, `fmod` the sign of the dividend. Floor division is rounded by means of the
remainder, as in Python: ``3.0 // 0.3`` is 9, though ``3.0 / 0.3`` rounds to 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor

from fx_importer.decompositions.elementwise.scalars import Number, on_tensors
from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.table import Decomposition, LayeredRule, decomposes
from fx_importer.fx_graph.operators import aten

Magnitude = Callable[[Tensor, Tensor], Tensor]
"""Returns the remainder of two non-negative floats."""


def by_remainder(a: Tensor, b: Tensor) -> Tensor:
    """Return ``remainder(a, b)`` of non-negative operands, for which truncated and floored remainders agree."""
    with keep(aten.remainder.Tensor):
        return torch.remainder(a, b)


def by_quotient(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a - floor(a / b) * b`` of non-negative operands, exact for quotients up to about 2**22.

    For a target without a remainder, whose quotients are products.
    """
    rest = a - torch.floor(a / b) * b
    rest = torch.where(rest < 0, rest + b, rest)
    rest = torch.where(rest >= b, rest - b, rest)
    rest = torch.where((b == math.inf) & (a < math.inf), a, rest)
    return torch.where(b == 0, math.nan, rest)


def _fmod(a: Tensor, b: Tensor, magnitude: Magnitude) -> Tensor:
    """Return ``a - trunc(a / b) * b``, of two tensors of one dtype."""
    if not a.is_floating_point():
        with keep(aten.div.Tensor_mode):
            return a - torch.div(a, b, rounding_mode="trunc") * b
    rest = magnitude(a.abs(), b.abs())
    return torch.where(a < 0, -rest, torch.where((a == 0) & (rest == 0), a, rest))


def _needs_floor_correction(rest: Tensor, b: Tensor) -> Tensor:
    """Return where the floored remainder is ``rest + b``, and the floored quotient is one less.

    ``rest`` is the truncated remainder.
    """
    return torch.where(b < 0, rest > 0, rest < 0)


def _remainder(a: Tensor, b: Tensor, magnitude: Magnitude) -> Tensor:
    """Return ``a - floor(a / b) * b``."""
    rest = _fmod(a, b, magnitude)
    crosses = _needs_floor_correction(rest, b)
    if a.is_floating_point():
        return torch.where(crosses, rest + b, rest)
    return rest + torch.where(crosses, b, 0)  # adding b everywhere could overflow


def _floor_divide(a: Tensor, b: Tensor, magnitude: Magnitude) -> Tensor:
    """Return ``floor(a / b)``."""
    if not a.is_floating_point():
        with keep(aten.div.Tensor_mode):
            quotient = torch.div(a, b, rounding_mode="trunc")
        return quotient - torch.where(_needs_floor_correction(a - quotient * b, b), 1, 0).to(a.dtype)
    rest = _fmod(a, b, magnitude)
    quotient = (a - rest) / b
    quotient = torch.where(_needs_floor_correction(rest, b), quotient - 1, quotient)
    floor = torch.floor(quotient)
    floor = torch.where(quotient - floor > 0.5, floor + 1, floor)
    floor = torch.where(rest != rest, rest, floor)  # a quotient by a constant infinity is folded to 0
    return torch.where(b == 0, a / b, floor)


def _in_common_dtype(compute: Callable[[Tensor, Tensor], Tensor], a: Tensor | float, b: Tensor | float) -> Tensor:
    """Compute with two tensors of the promoted dtype of ``a`` and ``b``; half precision in float32."""
    operands: tuple[Any, Any] = (a, b)
    if not all(isinstance(operand, Tensor | int | float | SymInt) for operand in operands):
        return NotImplemented
    dtype = torch.result_type(*(0 if isinstance(operand, SymInt) else operand for operand in operands))
    wide = torch.float32 if dtype in HALF_DTYPES else dtype

    def convert(x: Any) -> Tensor:
        if isinstance(x, SymInt):
            return torch.scalar_tensor(x, dtype=dtype).to(wide)  # type: ignore[arg-type]
        return (x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype)).to(wide)

    return compute(convert(a), convert(b)).to(dtype)


def correct_remainder(a: Tensor | float, b: Tensor | float) -> Tensor:
    """Return the remainder by the operator itself, whose lowering may give it the dividend's sign."""
    if is_kept(aten.remainder.Tensor):
        return NotImplemented

    def compute(a: Tensor, b: Tensor) -> Tensor:
        rest = by_remainder(a, b)
        return rest + torch.where(_needs_floor_correction(rest, b), b, 0)

    return _in_common_dtype(compute, a, b)


def division_rules(magnitude: Magnitude, *, remainders: bool) -> tuple[Decomposition, ...]:
    """Return the rules of division; without ``remainders``, `remainder` of two tensors stays."""

    @decomposes(aten.fmod.Tensor, aten.fmod.Scalar)
    def fmod(a: Tensor, b: Tensor | float) -> Tensor:
        return _in_common_dtype(lambda a, b: _fmod(a, b, magnitude), a, b)

    @decomposes(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
    def remainder(a: Tensor | float, b: Tensor | float) -> Tensor:
        if is_kept(aten.remainder.Tensor):
            return NotImplemented
        if not remainders:
            return _in_common_dtype(by_remainder, a, b)
        return _in_common_dtype(lambda a, b: _remainder(a, b, magnitude), a, b)

    if magnitude is by_remainder and remainders:
        remainder = Decomposition(remainder.operators, LayeredRule(remainder.rule, correct_remainder))

    @decomposes(aten.floor_divide.default, aten.floor_divide.Scalar)
    def floor_divide(a: Tensor, b: Tensor | float) -> Tensor:
        return _in_common_dtype(lambda a, b: _floor_divide(a, b, magnitude), a, b)

    @decomposes(aten.div.Tensor_mode, aten.div.Scalar_mode)
    def divide(a: Tensor | float, b: Tensor | float, *, rounding_mode: str | None = None) -> Any:
        if rounding_mode is None:  # a true division of integers, too
            return torch.div(a, b)
        if rounding_mode == "floor":
            return _in_common_dtype(lambda a, b: _floor_divide(a, b, magnitude), a, b)
        if is_kept(aten.div.Tensor_mode):
            return NotImplemented
        with keep(aten.div.Tensor_mode):
            return _in_common_dtype(lambda a, b: torch.div(a, b, rounding_mode=rounding_mode), a, b)

    return fmod, remainder, floor_divide, divide


@decomposes(aten.div.Tensor, aten.div.Scalar)
def divide_by_scalar(a: Tensor | Number, b: Tensor | Number) -> Tensor:
    """Return ``a / b`` with a number as a tensor."""
    return on_tensors(aten.div.Tensor, a, b)


@decomposes(aten.div.Tensor, aten.div.Scalar)
def divide_integers_by_number(x: Tensor, number: Any) -> Any:
    """Divide integers or bools as floats, in whose dtype the number may not fit."""
    if not isinstance(number, Number) or not isinstance(x, Tensor) or x.is_floating_point() or x.is_complex():
        return NotImplemented
    return torch.div(x.to(torch.get_default_dtype()), number)


@decomposes(aten.reciprocal.default)
def reciprocal(x: Tensor) -> Any:
    """Return ``1 / x``: the C++ lowering asserts that ``x`` has no zero."""
    if x.is_complex():
        return NotImplemented
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.ones((), dtype=x.dtype) / x


@decomposes(aten.reciprocal.default)
def reciprocal_of_integers(x: Tensor) -> Any:
    """Return ``1 / x`` of integers, as a float; on floats the operator stays."""
    return reciprocal(x) if not x.is_floating_point() else NotImplemented
