"""Rules of ``view.dtype``, which reads the bits of elements as another dtype, little-endian.

Between widths, integers of one width are taken apart and put together by shifts. Floats are first integers of their own
width, and back: an operator that linalg and StableHLO have, and TOSA computes by arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.special.float_parts import frexp
from fx_importer.fx_graph.operators import aten

INTEGERS_BY_WIDTH = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the number of bytes."""
_FRACTION_BITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23}
_ANY_WIDTH = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def float_bits(x: Tensor) -> Tensor:
    """Return the bits of floats as integers of their width."""
    with keep(aten.view.dtype):
        return aten.view.dtype(x, INTEGERS_BY_WIDTH[x.dtype.itemsize])


@decomposes(aten.view.dtype)
def view_of_bits(x: Tensor, dtype: torch.dtype) -> Any:
    """Convert by way of signed integers; between floats and integers of one width, the operator stays."""
    if is_kept(aten.view.dtype):
        return NotImplemented
    return _view(x, dtype, float_bits, _kept_view)


@decomposes(aten.view.dtype)
def tosa_view_of_bits(x: Tensor, dtype: torch.dtype) -> Any:
    """Convert by way of signed integers, and these from and to floats by arithmetic."""
    if x.dtype != dtype and {x.dtype, dtype} & {torch.float64, torch.complex128}:
        return NotImplemented  # TOSA computes them in float32, which has other bits
    return _view(x, dtype, _bits_by_arithmetic, _floats_by_arithmetic)


def _kept_view(bits: Tensor, dtype: torch.dtype) -> Tensor:
    with keep(aten.view.dtype):
        return aten.view.dtype(bits, dtype)


def _view(x: Tensor, dtype: torch.dtype, bits_of: Any, floats_of: Any) -> Any:
    if x.dtype == dtype:
        return x.clone()
    if x.is_complex():
        x = torch.view_as_real(x).flatten(-2)
    whole = dtype
    if dtype.is_complex:
        whole = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype)
    if whole is None or not (_has_bits(x.dtype) and _has_bits(whole)):
        return NotImplemented
    bits = x
    if x.dtype.is_floating_point:
        bits = bits_of(x)
    elif (signed := INTEGERS_BY_WIDTH[x.dtype.itemsize]) != x.dtype:
        bits = x.to(signed)
    bits = _with_width(bits, whole.itemsize)
    if whole.is_floating_point:
        value = floats_of(bits, whole)
    else:
        value = bits != 0 if whole == torch.bool else bits if bits.dtype == whole else bits.to(whole)
    return torch.view_as_complex(value.unflatten(-1, (-1, 2))) if dtype.is_complex else value


def _has_bits(dtype: torch.dtype) -> bool:
    return dtype in _ANY_WIDTH if dtype.is_floating_point else not dtype.is_complex


def _with_width(bits: Tensor, width: int) -> Tensor:
    """Return signed integers as others of ``width`` bytes: along the last axis, more narrow or fewer wide ones."""
    source_width, dtype = bits.dtype.itemsize, INTEGERS_BY_WIDTH[width]
    if width < source_width:
        # Arithmetic in 8 and 16 bits is not to be had everywhere.
        wide = bits if source_width >= 4 else bits.int()
        parts = [_low_bits(wide >> (8 * width * number), width).to(dtype) for number in range(source_width // width)]
        return torch.stack(parts, -1).flatten(-2)
    if width == source_width:
        return bits
    count = width // source_width
    wide = bits.to(torch.int64 if width == 8 else torch.int32)
    parts = wide.unflatten(-1, (-1, count)).unbind(-1)
    total = parts[-1] << (8 * source_width * (count - 1))
    for number, part in enumerate(parts[:-1]):
        total = total | ((part & ((1 << (8 * source_width)) - 1)) << (8 * source_width * number))
    return total if total.dtype == dtype else total.to(dtype)


def _low_bits(x: Tensor, width: int) -> Tensor:
    """Return the lowest ``width`` bytes of ``x``, with their sign: a conversion then has nothing to cut off."""
    half = 1 << (8 * width - 1)
    return ((x & (2 * half - 1)) ^ half) - half


def _bits_by_arithmetic(x: Tensor) -> Any:
    """Return the bits of floats: sign, exponent and fraction. Every NaN is the positive quiet one."""
    places = _FRACTION_BITS[x.dtype]
    width = 8 * x.dtype.itemsize
    bias = (1 << (width - places - 2)) - 1
    wide = x.float()
    mantissa, exponent = frexp(wide.abs())
    exponent = exponent + (bias - 1)
    normal = exponent > 0
    # A subnormal number is a multiple of the smallest one, in two exact steps.
    multiple = wide.abs() * 2.0 ** min(places + bias - 1, 100) * 2.0 ** max(places + bias - 101, 0)
    fraction = torch.where(normal, (mantissa * 2.0 - 1.0) * 2.0**places, multiple)
    finite = (wide.abs() < math.inf) & (wide != 0)
    bits = torch.where(finite, fraction, 0.0).to(torch.int32)
    bits = bits + torch.where(normal & finite, exponent << places, 0)
    infinity = ((1 << (width - places - 1)) - 1) << places
    bits = torch.where(wide.abs() == math.inf, infinity, bits)
    bits = torch.where(wide != wide, infinity + (1 << (places - 1)), bits)
    negative = (wide < 0) | ((wide == 0) & (1.0 / wide < 0))
    bits = torch.where(negative, bits | -(1 << (width - 1)), bits)
    return bits.to(INTEGERS_BY_WIDTH[x.dtype.itemsize]) if width < 32 else bits


def _floats_by_arithmetic(bits: Tensor, dtype: torch.dtype) -> Any:
    """Return the floats with these bits; every NaN is the quiet one."""
    places = _FRACTION_BITS[dtype]
    width = 8 * dtype.itemsize
    bias = (1 << (width - places - 2)) - 1
    bits = bits.int()
    fraction = (bits & ((1 << places) - 1)).float()
    exponent = (bits >> places) & ((1 << (width - places - 1)) - 1)
    normal = fraction * 2.0**-places + 1.0
    up = torch.where(exponent > bias, exponent - bias, 0)
    down = torch.where(exponent < bias, bias - exponent, 0)
    for step in range(bias.bit_length()):
        normal = torch.where(up & (1 << step) != 0, normal * 2.0 ** (1 << step), normal)
        normal = torch.where(down & (1 << step) != 0, normal * 2.0 ** -(1 << step), normal)
    smallest = bias - 1 + places
    subnormal = fraction * 2.0 ** -min(smallest, 100) * 2.0 ** -max(smallest - 100, 0)
    value = torch.where(exponent == 0, subnormal, normal)
    special = torch.where(fraction == 0, math.inf, math.nan)
    value = torch.where(exponent == (1 << (width - places - 1)) - 1, special, value)
    value = torch.where(bits < 0, -value, value)
    return value.to(dtype)
