"""Decompositions of grid sampling, of volumes and of images with dynamic shapes."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


@decomposes(aten.grid_sampler_3d.default)
def grid_sampler_3d(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """Sample ``x``, [N, C, D, H, W], at ``grid``, [N, d, h, w, 3], whose last axis is x, y, z (width, height, depth).

    The edges of ``x`` are -1 and 1; with ``align_corners``, the centers of its outermost elements are.
    """
    if interpolation_mode not in (_BILINEAR, _NEAREST):
        return NotImplemented
    sizes = x.shape[2:]
    places = [
        _unnormalize(grid[..., len(sizes) - 1 - axis], size, padding_mode, align_corners)
        for axis, size in enumerate(sizes)
    ]
    if interpolation_mode == _NEAREST:
        return _gather(x, [position.round() for position in places])
    lower = [position.floor() for position in places]
    total = torch.zeros((), dtype=x.dtype)
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        at = [low + step for low, step in zip(lower, corner, strict=True)]
        weights = [1 - (position - center).abs() for position, center in zip(places, at, strict=True)]
        weight = functools.reduce(torch.mul, weights)
        total = total + _gather(x, at) * weight.unsqueeze(1)
    return total


@decomposes(aten.grid_sampler_2d.default)
def grid_sampler_2d(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """Sample [N, C, H, W] at [N, h, w, 2], if a size is dynamic."""
    if is_static(x, grid):
        return NotImplemented
    return grid_sampler_3d(x, grid, interpolation_mode, padding_mode, align_corners)


def _unnormalize(coordinate: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Return ``coordinate`` in elements of an axis of ``size``."""
    position = (coordinate + 1) / 2 * (size - 1) if align_corners else ((coordinate + 1) * size - 1) / 2
    if padding_mode == _REFLECTION:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        position = _reflect(position - low, span) + low
    return position if padding_mode == _ZEROS else position.clamp(0, size - 1)


def _reflect(distance: Tensor, span: int) -> Tensor:
    """Reflect ``distance`` at every multiple of ``span``."""
    if span == 0:
        return torch.zeros_like(distance)
    folds = (distance.abs() / span).floor()
    rest = distance.abs() - folds * span
    return torch.where(folds - 2 * (folds / 2).floor() == 0, rest, span - rest)


def _gather(x: Tensor, places: list[Tensor]) -> Tensor:
    """Return the elements of ``x`` at integral ``places``, as [N, C, *places]; elements outside are zero."""
    inside = torch.ones((), dtype=torch.bool)
    indices: list[Tensor] = []
    for position, size in zip(places, x.shape[2:], strict=True):
        inside = torch.logical_and(inside, torch.logical_and(position >= 0, position <= size - 1))
        indices.append(position.clamp(0, size - 1).to(torch.int64).unsqueeze(1))
    flat, position = x.flatten(2), indices[0]
    for index, size in zip(indices[1:], x.shape[3:], strict=True):
        position = position * size + index
    channels = position.flatten(2).expand(x.shape[0], x.shape[1], -1)
    result = torch.gather(flat, 2, channels).reshape(*x.shape[:2], *position.shape[2:])
    return torch.where(inside.unsqueeze(1), result, 0.0)
