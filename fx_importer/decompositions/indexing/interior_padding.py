"""Interior padding, and arguments of windows per axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_importer.fx_graph.operators import aten


def per_axis(values: Sequence[int] | int, axes: int) -> list[int]:
    """Return a kernel, stride, padding or dilation with one value for each of ``axes``; a single value is repeated."""
    listed = [values] if isinstance(values, int) else list(values)
    return listed * (axes // len(listed))


def pad_interior(x: Tensor, axis: int, step: int) -> Tensor:
    """Return ``x`` with ``step - 1`` zeros between its elements along ``axis`` (counted from the front)."""
    size = x.shape[axis]
    if step == 1 or (isinstance(size, int) and size < 2):
        return x
    behind = x.dim() - axis
    apart = aten.constant_pad_nd(x.unsqueeze(axis + 1), [0, 0] * (behind - 1) + [0, step - 1])
    shape = list(x.shape)
    shape[axis] *= step
    return apart.reshape(shape).narrow(axis, 0, shape[axis] - step + 1)


def place_strided(x: Tensor, axis: int, begin: int, step: int, size: int) -> Tensor:
    """Return zeros of ``size`` along ``axis``, with ``x`` at ``begin``, ``begin + step``, …, cropped at both ends.

    ``begin`` may be negative.
    """
    apart = pad_interior(x, axis, step)
    length = apart.shape[axis]
    first, last = max(-begin, 0), min(length, size - begin)
    if last <= first:
        return torch.zeros([*x.shape[:axis], size, *x.shape[axis + 1 :]], dtype=x.dtype)
    inside = apart.narrow(axis, first, last - first)
    widths = [0, 0] * (x.dim() - axis - 1) + [begin + first, size - begin - last]
    return aten.constant_pad_nd(inside, widths) if any(widths) else inside
