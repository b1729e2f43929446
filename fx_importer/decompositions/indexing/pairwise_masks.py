"""Pairwise masks: order, counts and accumulation for targets that lack a sort or a scatter.

The mask has the product of both sides' elements, at most `MAX_MASK_ELEMENTS`, where dynamic sizes count as one. A rule
whose mask would be larger keeps the operator.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MAX_MASK_ELEMENTS = 1 << 24
"""The number of elements of the largest mask."""

_MAX_CHUNKS = 16
"""Largest number of chunks of a mask that would be too large as a whole."""


def fits(*sizes: int) -> bool:
    """Return whether a mask of ``sizes`` is within the limit; dynamic sizes do not count."""
    return math.prod(size for size in sizes if isinstance(size, int)) <= MAX_MASK_ELEMENTS


def chunks(number: int, others: int) -> list[tuple[int, int]] | None:
    """Return the bounds of chunks of ``number`` whose masks with ``others`` fit; None if there are too many.

    A dynamic ``number`` is one chunk, and dynamic ``others`` count as one.
    """
    if not isinstance(number, int):
        return [(0, number)]
    share = MAX_MASK_ELEMENTS // max(others if isinstance(others, int) else 1, 1)
    if share * _MAX_CHUNKS < number:
        return None
    return [(start, min(start + share, number)) for start in range(0, number, share)]


def positions(size: int) -> Tensor:
    """Return ``arange(size)`` in int32, which every target can compare and add."""
    return torch.arange(size, dtype=torch.int32)


def count(mask: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Return the number of true elements of ``mask`` along ``dim``, in int32."""
    return torch.sum(mask.to(torch.int32), dim, keepdim, dtype=torch.int32)


def masked_row_sums(hits: Tensor, rows: Tensor) -> Tensor:
    """Return for each row of ``hits`` the sum of the ``rows`` where it is true.

    Args:
        hits: [..., n, m], bool.
        rows: [..., m, width]; any dtype but complex.

    For floats this is one matmul. As zero times infinity is NaN there, non-finite elements are counted separately, NaN
    as both infinities.
    """
    if not rows.is_floating_point():
        zero = torch.zeros((), dtype=rows.dtype)
        return torch.sum(torch.where(hits.unsqueeze(-1), rows.unsqueeze(-3), zero), -2, dtype=rows.dtype)
    top = torch.finfo(rows.dtype).max
    up, down = ~(rows <= top), ~(rows >= -top)
    finite = torch.where(up | down, torch.zeros_like(rows), rows)
    width = rows.shape[-1]
    marks = hits.to(rows.dtype)
    result = marks @ torch.cat([finite, up.to(rows.dtype), down.to(rows.dtype)], -1)
    total, ups, downs = (result.narrow(-1, part * width, width) for part in range(3))
    infinite = torch.full_like(total, math.inf)
    total = torch.where(ups > 0, total + infinite, total)
    return torch.where(downs > 0, total - infinite, total)
