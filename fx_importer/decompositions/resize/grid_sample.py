"""Decomposition of grid sampling."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_BILINEAR, _NEAREST = 0, 1  # 2 is bicubic
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


@decomposes(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Sample ``x``, [N, C, D, H, W], at ``grid``, [N, d, h, w, 3], whose last axis is x, y, z (width, height, depth).

    Images have no D, d and z. The edges of ``x`` are -1 and 1; with ``align_corners``, the centers of its outermost
    elements are.
    """
    sizes = x.shape[2:]
    taps: list[list[_Tap]] = []
    for axis, size in enumerate(sizes):
        coordinate = grid[..., len(sizes) - 1 - axis]
        padded = functools.partial(_padded, size=size, mode=padding_mode, align_corners=align_corners)
        taps.append(_taps(_unnormalized(coordinate, size, align_corners), size, interpolation_mode, padded))
    rows = x.flatten(2).transpose(1, 2).flatten(0, 1)
    samples = [_sample(rows, x.shape[0], corner) for corner in itertools.product(*taps)]
    return functools.reduce(torch.add, samples).movedim(-1, 1)


class _Tap:
    """Elements at the integral positions ``at`` along an axis of ``size``, and their weights."""

    def __init__(self, at: Tensor, size: int, weight: Tensor | None):
        inner = at.clamp(0, size - 1)
        self.size = size
        self.index = inner.to(torch.int64)
        self.inside = inner == at
        self.weight = weight


def _taps(position: Tensor, size: int, interpolation_mode: int, padded: Callable[[Tensor], Tensor]) -> list[_Tap]:
    """Return the elements of an axis of ``size`` that are read at ``position``."""
    if interpolation_mode == _NEAREST:
        return [_Tap(padded(position).round(), size, None)]
    if interpolation_mode == _BILINEAR:
        position = padded(position)
        low = position.floor()
        high = low + 1
        return [_Tap(low, size, high - position), _Tap(high, size, position - low)]
    low = position.floor()
    weights = _cubic_weights(position - low)
    return [_Tap(padded(low + step), size, weight) for step, weight in zip((-1, 0, 1, 2), weights, strict=True)]


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Return the weights of the four elements around, ``t`` beyond the second: Keys' kernel with a = -0.75.

    R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
    """
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _sample(rows: Tensor, batch: int, corner: Sequence[_Tap]) -> Tensor:
    """Return ``rows``, [N * elements, C], at ``corner``, times its weights, as [N, *places, C]; zero outside."""
    inside = functools.reduce(torch.logical_and, [tap.inside for tap in corner])
    index = corner[0].index
    for tap in corner[1:]:
        index = index * tap.size + tap.index
    if not (isinstance(batch, int) and batch == 1):
        images = torch.arange(batch) * math.prod(tap.size for tap in corner)
        index = index + images.reshape(-1, *[1] * len(corner))
    index = torch.where(inside, index, 0)  # NaN has any index
    sample = torch.where(inside.unsqueeze(-1), torch.embedding(rows, index), 0.0)
    weights = [tap.weight for tap in corner if tap.weight is not None]
    return sample * functools.reduce(torch.mul, weights).unsqueeze(-1) if weights else sample


def _unnormalized(coordinate: Tensor, size: int, align_corners: bool) -> Tensor:
    """Return ``coordinate`` in elements of an axis of ``size``."""
    return (coordinate + 1) * ((size - 1) / 2) if align_corners else (coordinate + 1) * (size / 2) - 0.5


def _padded(position: Tensor, size: int, mode: int, align_corners: bool) -> Tensor:
    """Return ``position`` where the padding ``mode`` takes its element from."""
    if mode == _REFLECTION:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        position = _reflect(position - low, span) + low
    return position if mode == _ZEROS else position.clamp(0, size - 1)


def _reflect(distance: Tensor, span: int) -> Tensor:
    """Reflect ``distance`` at every multiple of ``span``."""
    if span == 0:
        return torch.zeros_like(distance)
    folds = (distance.abs() / span).floor()
    rest = distance.abs() - folds * span
    return torch.where(folds - 2 * (folds / 2).floor() == 0, rest, span - rest)
