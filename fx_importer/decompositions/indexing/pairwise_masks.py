"""Comparing all pairs: what order, counts and accumulation come down to where a target has no sort and no scatter.

A mask of all pairs has as many elements as its two sides multiplied. It is made up to `LARGEST`; a rule whose mask
would be larger, or whose sizes are not known, leaves the operator whole.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST = 1 << 24
"""The number of elements of the largest mask."""


def is_static(*tensors: Tensor | None) -> bool:
    """Return whether every size is a number."""
    return all(isinstance(size, int) for each in tensors if each is not None for size in each.shape)


def are_known(*sizes: int) -> bool:
    """Return whether every one of ``sizes`` is a number."""
    return all(isinstance(size, int) for size in sizes)


def is_empty(x: Tensor) -> bool:
    """Return whether a size that is known is zero."""
    return 0 in [size for size in x.shape if isinstance(size, int)]


def fits(*sizes: int) -> bool:
    """Return whether a mask of ``sizes`` may be made; of those that are known."""
    return math.prod(size for size in sizes if isinstance(size, int)) <= LARGEST


def positions(size: int) -> Tensor:
    """Return 0, 1, 2, … in int32, which every target compares and adds."""
    return torch.arange(size, dtype=torch.int32)


def count(mask: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Return how often ``mask`` is true along ``dim``, in int32."""
    return torch.sum(mask.to(torch.int32), dim, keepdim, dtype=torch.int32)


def sums(hits: Tensor, rows: Tensor) -> Tensor:
    """Return for each row of ``hits`` the sum of those ``rows`` that it marks.

    Args:
        hits: [..., n, m], bool.
        rows: [..., m, width]; any dtype but complex.

    Floating point is one product of matrices. There a zero times infinity would reach every sum, so that what is not
    finite goes apart: counted, with NaN as both infinities.
    """
    if not rows.is_floating_point():
        zero = torch.zeros((), dtype=rows.dtype)
        return torch.sum(torch.where(hits.unsqueeze(-1), rows.unsqueeze(-3), zero), -2, dtype=rows.dtype)
    top = torch.finfo(rows.dtype).max
    up, down = ~(rows <= top), ~(rows >= -top)
    finite = torch.where(up | down, torch.zeros_like(rows), rows)
    width = rows.shape[-1]
    marks = hits.to(rows.dtype)
    found = marks @ torch.cat([finite, up.to(rows.dtype), down.to(rows.dtype)], -1)
    total, ups, downs = (found.narrow(-1, part * width, width) for part in range(3))
    infinite = torch.full_like(total, math.inf)
    total = torch.where(ups > 0, total + infinite, total)
    return torch.where(downs > 0, total - infinite, total)
