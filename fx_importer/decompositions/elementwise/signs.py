"""Rules of signbit, copysign and heaviside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.elementwise.bit_views import float_bits
from fx_importer.decompositions.elementwise.scalars import Number
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _signbit_by_bits(x: Tensor) -> Tensor:
    return float_bits(x) < 0 if x.is_floating_point() else x < 0


def _signbit_by_reciprocal(x: Tensor) -> Tensor:
    """Return whether ``x`` is negative or minus zero, whose reciprocal is negative; false for NaN."""
    return (x < 0) | ((x == 0) & (1.0 / x < 0)) if x.is_floating_point() else x < 0


def _sign_rules(negative: Callable[[Tensor], Tensor]) -> tuple[Decomposition, ...]:
    """Return the rules of signbit and copysign; ``negative`` returns the sign bit of each element."""

    @decomposes(aten.signbit.default)
    def signbit(x: Tensor) -> Tensor:
        return torch.zeros_like(x) if x.dtype == torch.bool else negative(x)

    @decomposes(aten.copysign.Tensor, aten.copysign.Scalar)
    def copysign(x: Tensor, sign: Tensor | Number) -> Tensor:
        """Return the magnitude of ``x`` with the sign of ``sign``, including zero's sign."""
        dtype = torch.result_type(x, sign)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        magnitude = x.to(dtype).abs()
        if isinstance(sign, Tensor):
            return torch.where(signbit(sign), -magnitude, magnitude)
        return -magnitude if math.copysign(1, sign) < 0 else magnitude

    return signbit, copysign


@decomposes(aten.heaviside.default)
def heaviside(x: Tensor, at_zero: Tensor) -> Tensor:
    """Return 1 above zero, ``at_zero`` at zero and 0 below."""
    return torch.where(x == 0, at_zero, (x > 0).to(x.dtype))


@decomposes(aten.sign.default)
def sign(x: Tensor) -> Any:
    """Return ``(x > 0) - (x < 0)``; the C++ canonicalization folds it for a constant to -1."""
    if x.is_complex() or x.dtype is torch.bool:
        return NotImplemented
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


SIGNS: tuple[Decomposition, ...] = (*_sign_rules(_signbit_by_bits), heaviside, sign)
TOSA_SIGNS: tuple[Decomposition, ...] = (*_sign_rules(_signbit_by_reciprocal), heaviside)
"""TOSA cannot read the sign of NaN."""
