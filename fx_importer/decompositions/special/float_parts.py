"""Rules of frexp and nextafter, by exact arithmetic.

Not every target can read the bits of a float.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


def _exponent_steps(dtype: torch.dtype) -> list[int]:
    return [512, 256, 128, 64, 32, 16, 8, 4, 2, 1] if dtype == torch.float64 else [64, 32, 16, 8, 4, 2, 1]


@decomposes(aten.frexp.Tensor)
def frexp(x: Tensor) -> Any:
    """Return mantissa, from 1/2 to 1, and exponent of ``x = mantissa * 2**exponent``.

    Exact, in steps that halve the remaining exponent. Of zero, infinity and NaN the mantissa is the number itself and
    the exponent zero.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    magnitude = wide.abs()
    special = (magnitude == 0) | (magnitude == torch.inf) | (wide != wide)
    mantissa = torch.where(special, 0.5, magnitude)
    exponent = torch.zeros_like(mantissa)
    for bits in _exponent_steps(wide.dtype):
        tall = mantissa >= 2.0**bits
        mantissa = torch.where(tall, mantissa * 2.0**-bits, mantissa)
        exponent = torch.where(tall, exponent + bits, exponent)
    tall = mantissa >= 1
    mantissa, exponent = torch.where(tall, mantissa / 2, mantissa), torch.where(tall, exponent + 1, exponent)
    for bits in _exponent_steps(wide.dtype):
        # Twice the largest step: exponents of subnormal numbers reach further down than up.
        for _ in range(2 if bits in (64, 512) else 1):
            flat = mantissa < 2.0**-bits
            mantissa = torch.where(flat, mantissa * 2.0**bits, mantissa)
            exponent = torch.where(flat, exponent - bits, exponent)
    mantissa = torch.where(wide < 0, -mantissa, mantissa)
    return torch.where(special, wide, mantissa).to(x.dtype), torch.where(special, 0, exponent).to(torch.int32)


@decomposes(aten.nextafter.default)
def nextafter(x: Tensor, towards: Tensor) -> Tensor:
    """Return the next float from x in the direction of ``towards``.

    By Rump, Zimmermann, Boldo and Melquiond, "Computing predecessor and successor in rounding to nearest" (2009):
    adding slightly more than half of the last digit of x rounds to the neighbour; near zero that is done scaled by
    2**100.
    """
    dtype = torch.result_type(x, towards)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    here, there = torch.broadcast_tensors(x.to(wide), towards.to(wide))
    info = torch.finfo(dtype)
    half, least = info.eps / 2, info.smallest_normal * info.eps
    nudge = half * (1 + 2 * half)
    magnitude = here.abs()
    sign = torch.where(there > here, 1.0, -1.0).to(wide)
    scaled = here * 2.0**100
    near = (scaled + sign * (scaled.abs() * nudge)) * 2.0**-100
    far = here + sign * (magnitude * nudge)
    tiny = torch.where(here == -sign * least, here * 0, here + sign * least)
    if dtype == wide:
        result = torch.where(magnitude > info.smallest_normal * 2.0**40, far, near)
    else:
        result = far.to(dtype).to(wide)
    result = torch.where(magnitude < 2 * info.smallest_normal, tiny, result)
    result = torch.where(magnitude == torch.inf, -sign * info.max, result)
    result = torch.where(here == there, there, result)
    return torch.where((here != here) | (there != there), torch.nan, result).to(dtype)


FLOAT_PARTS = (frexp, nextafter)
