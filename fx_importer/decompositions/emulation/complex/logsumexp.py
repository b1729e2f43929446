"""Rules of logaddexp and logcumsumexp of complex numbers.

Each rule returns ``NotImplemented`` for real tensors. The imaginary part depends on the order of terms: in another
order it would differ by multiples of 2 pi.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.linalg_dense.row_loops import counted_loop, indices_along
from fx_importer.fx_graph.operators import aten


@decomposes(aten.logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    """Return the logarithm of the cumulative sum of exponentials, term by term, as eager."""
    if not x.is_complex():
        return NotImplemented
    if x.dim() == 0 or is_empty(x) or not isinstance(x.shape[dim], int):
        return x.clone() if x.dim() == 0 or is_empty(x) else NotImplemented
    real, imaginary = (part.movedim(dim, -1) for part in parts_of_tensor(x))

    def step(
        i: Tensor, reals: Tensor, imaginaries: Tensor, a: Tensor, b: Tensor, real: Tensor, imaginary: Tensor
    ) -> tuple[Tensor, ...]:
        here = indices_along(real, -1) == i
        c, d = torch.where(here, real, 0.0).sum(-1), torch.where(here, imaginary, 0.0).sum(-1)
        e, f = _logaddexp_parts(a, b, c, d)
        a, b = torch.where(i == 0, c, e), torch.where(i == 0, d, f)
        return torch.where(here, a.unsqueeze(-1), reals), torch.where(here, b.unsqueeze(-1), imaginaries), a, b

    zeros, start = torch.zeros_like(real), torch.zeros_like(real[..., 0])
    sums = counted_loop(x.shape[dim], step, zeros, zeros.clone(), start, start.clone(), invariants=(real, imaginary))
    return torch.complex(*(part.movedim(-1, dim) for part in sums[:2]))


def _logaddexp_parts(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of ``log(exp(a + bi) + exp(c + di))``.

    With ``z = exp(small - large)`` it is ``large + log(1 + z)``, and ``|1 + z|**2`` is ``1 + 2 Re(z) + |z|**2``.
    """
    first = a > c
    large, phase = torch.where(first, a, c), torch.where(first, b, d)
    difference = torch.where(a == c, 0.0, torch.where(first, c - a, a - c))
    magnitude, angle = torch.exp(difference), torch.where(first, d - b, b - d)
    real_part, imaginary_part = magnitude * torch.cos(angle), magnitude * torch.sin(angle)
    return large + 0.5 * torch.log1p(real_part + real_part + magnitude * magnitude), phase + torch.atan2(
        imaginary_part, 1.0 + real_part
    )


@decomposes(aten.logaddexp.default)
def logaddexp(x: Tensor, y: Tensor) -> Any:
    """Return ``log(exp(x) + exp(y))``."""
    if not x.is_complex() or not y.is_complex():
        return NotImplemented
    return torch.complex(*_logaddexp_parts(*parts_of_tensor(y), *parts_of_tensor(x)))


COMPLEX_LOGSUMEXP: tuple[Decomposition, ...] = (logaddexp, logcumsumexp)
