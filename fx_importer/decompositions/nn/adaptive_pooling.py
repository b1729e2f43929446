"""Pools that are asked for a number of windows, where the size that these divide is not known: a mask per axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


def _is_open(x: Tensor, output_size: Sequence[int]) -> bool:
    """Whether a size that is divided into windows is not known, and how many there are is."""
    divided = x.shape[-len(output_size) :]
    return not are_static(*divided) and are_static(*output_size)


def _windows(size: Any, outputs: int) -> tuple[Tensor, Tensor]:
    """Return which of ``size`` places are in each window, as ``[outputs, size]``, and how many are, as ``[outputs]``.

    Window ``i`` begins at ``floor(i * size / outputs)``, and ends before ``ceil((i + 1) * size / outputs)``.
    """
    window, place = torch.arange(outputs), torch.arange(size)
    starts = torch.div(window * size, outputs, rounding_mode="floor")
    ends = torch.div((window + 1) * size + (outputs - 1), outputs, rounding_mode="floor")
    inside = torch.logical_and(place >= starts.unsqueeze(-1), place < ends.unsqueeze(-1))
    return inside, ends - starts


@decomposes(aten.adaptive_avg_pool1d.default, aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def average(x: Tensor, output_size: Sequence[int]) -> Any:
    """The averages of the windows, one axis after the other."""
    if not _is_open(x, output_size):
        return NotImplemented
    for axis, outputs in enumerate(output_size, x.dim() - len(output_size)):
        inside, lengths = _windows(x.shape[axis], outputs)
        rows = x.movedim(axis, -1).unsqueeze(-2)
        total = torch.sum(torch.where(inside, rows, torch.zeros((), dtype=x.dtype)), -1)
        x = (total / lengths.to(x.dtype)).movedim(-1, axis)
    return x


@decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def largest(x: Tensor, output_size: Sequence[int]) -> Any:
    """The largest elements of the windows, and their places in the flat order of the axes."""
    if not _is_open(x, output_size) or not x.is_floating_point():
        return NotImplemented
    least = torch.full((), -math.inf, dtype=x.dtype)
    sizes = x.shape[-len(output_size) :]
    places: Tensor | None = None
    for axis in reversed(range(len(sizes))):
        at = x.dim() - len(sizes) + axis
        inside, _ = _windows(sizes[axis], output_size[axis])
        x, place = torch.max(torch.where(inside, x.movedim(at, -1).unsqueeze(-2), least), -1)
        x, place = x.movedim(-1, at), place.movedim(-1, at)
        behind = math.prod(sizes[axis + 1 :])
        places = place if places is None else place * behind + places.gather(at, place)
    return x, places


ADAPTIVE = (average, largest)
