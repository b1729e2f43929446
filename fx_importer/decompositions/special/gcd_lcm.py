"""Rules of gcd and lcm, by Euclid's algorithm."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.engine.loops import while_loop
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.special.chebyshev import any_true
from fx_importer.fx_graph.operators import aten


def _euclid_step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``(b, a mod b)``, or ``(a, 0)`` where b is 0."""
    divisor = torch.where(b == 0, 1, b)
    rest = a - torch.div(a, divisor, rounding_mode="trunc") * divisor
    return torch.where(b == 0, a, b), torch.where(b == 0, b, rest)


def _divisor(a: Tensor, b: Tensor) -> Tensor:
    """Return the greatest common divisor of non-negative operands, in a loop until every remainder is zero."""
    return while_loop(lambda a, b: any_true(b != 0), _euclid_step, (a, b))[0]


def _operands(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, torch.dtype]:
    """Return both in the promoted dtype, at least int32: some targets divide no narrower integers."""
    dtype = torch.result_type(a, b)
    wide = dtype if dtype in (torch.int32, torch.int64) else torch.int32
    left, right = torch.broadcast_tensors(a.to(wide), b.to(wide))
    return left, right, dtype


@decomposes(aten.gcd.default)
def gcd(a: Tensor, b: Tensor) -> Tensor:
    """Return the greatest common divisor, exactly; gcd(0, 0) is 0."""
    left, right, dtype = _operands(a, b)
    return _divisor(left.abs(), right.abs()).to(dtype)


@decomposes(aten.lcm.default)
def lcm(a: Tensor, b: Tensor) -> Tensor:
    """Return the least common multiple, exactly where it fits; 0 if either operand is 0."""
    left, right, dtype = _operands(a, b)
    divisor = _divisor(left.abs(), right.abs())
    quotient = torch.div(left, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")
    return (quotient * right).abs().to(dtype)


GCD_LCM = (gcd, lcm)
