"""Counted loops over the rows of matrices, and masks that select a row.

Each algorithm of this package is one ``while_loop`` of a few operations over whole matrices of any size, with any batch
axes before the last two. Row ``i`` is read and written through the mask ``arange(n) == i``: not every target indexes by
the counter of a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.emulation.complex.parts import parts_of_tensor
from fx_importer.decompositions.engine.loops import while_loop


def counted_loop(
    count: int,
    step: Callable[..., tuple[Tensor, ...]],
    *state: Tensor,
    invariants: tuple[Tensor, ...] = (),
    until: Callable[..., Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Return ``state`` after ``state = step(i, *state, *invariants)`` for each ``i`` below ``count``.

    ``i`` is a tensor of rank 0. The step reads no other tensors than its arguments, and returns none of them unchanged.
    The loop ends early where ``until(*state, *invariants)`` is true.
    """

    def more(i: Tensor, *rest: Tensor) -> Tensor:
        left = i < count
        return left if until is None else torch.logical_and(left, torch.logical_not(until(*rest)))

    def body(i: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return i + 1, *step(i, *rest)

    if not count:
        return state
    start = torch.zeros((), dtype=torch.int64, device=state[0].device)
    return while_loop(more, body, (start, *state), invariants)[1:]


def indices_along(x: Tensor, dim: int) -> Tensor:
    """Return ``0, 1, …`` along axis ``dim`` of ``x``, as a vector."""
    return torch.arange(x.shape[dim], device=x.device)


def row(x: Tensor, here: Tensor) -> Tensor:
    """Return the row of each matrix where the mask ``here``, of one element per row, is set."""
    return torch.where(here.unsqueeze(-1), x, 0.0).sum(-2)


def column(x: Tensor, here: Tensor) -> Tensor:
    """Return the column of each matrix, or the element of each vector, where ``here`` is set."""
    return torch.where(here if x.dim() == here.dim() else here.unsqueeze(-2), x, 0.0).sum(-1)


def diagonal(x: Tensor) -> Tensor:
    """Return the main diagonal of each matrix."""
    size = min_size(*x.shape[-2:])
    square = x[..., :size, :size]
    at = indices_along(square, -1)
    return torch.where(at == at.unsqueeze(-1), square, 0.0).sum(-1)


def identity(like: Tensor, rows: int, columns: int) -> Tensor:
    """Return a ``rows`` × ``columns`` identity matrix for each matrix of ``like``."""
    one = torch.eye(rows, columns, dtype=like.dtype, device=like.device)
    return one.expand(*like.shape[:-2], rows, columns)


def is_inexact(*operands: Tensor) -> bool:
    """Return whether all operands are floating point or complex, as the algorithms require."""
    return all(x.is_floating_point() or x.is_complex() for x in operands)


def min_size(a: int, b: int) -> int:
    """Return the smaller of two sizes, which may be symbolic."""
    least: Any = torch.sym_min(a, b)
    return least


def transposed(x: Tensor, condition: bool = True) -> Tensor:
    """Return each matrix transposed, if ``condition``."""
    return x.transpose(-2, -1) if condition else x


def conjugate(x: Tensor) -> Tensor:
    """Return the conjugate of a complex tensor; a real one unchanged."""
    return torch.conj_physical(x) if x.is_complex() else x


def adjoint(x: Tensor, condition: bool = True) -> Tensor:
    """Return the conjugate transpose of each matrix, if ``condition``."""
    return conjugate(x.transpose(-2, -1)) if condition else x


def real(x: Tensor) -> Tensor:
    """Return the real parts."""
    return parts_of_tensor(x)[0] if x.is_complex() else x


def abs_squared(x: Tensor) -> Tensor:
    """Return ``|x|**2``."""
    if not x.is_complex():
        return x * x
    one, other = parts_of_tensor(x)
    return one * one + other * other


def scaled_by_largest(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return each matrix divided by its largest magnitude, so that squares do not overflow, and that magnitude."""
    largest = torch.amax(a.abs(), (-2, -1), keepdim=True)
    scale = torch.where(largest == 0, 1.0, largest)
    return a / scale, scale
