"""The part of each weight that a rank holds, of tensors, a safetensors file or a distributed checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fx_importer.distributed.checkpoint import Checkpoint
from fx_importer.distributed.mesh import Mesh
from fx_importer.errors import UsageError

Layout = tuple["int | None", ...]
"""For each axis of a mesh, the dimension that is divided along it; None where it is repeated."""

Source = Mapping[str, torch.Tensor] | str | os.PathLike[str]
"""Whole weights by name: tensors, or the path of a safetensors file or of a folder of torch.distributed.checkpoint."""


def read_shards(
    source: Source, layouts: Mapping[str, Layout], shapes: Mapping[str, tuple[int, ...]], mesh: Mesh, rank: int
) -> dict[str, torch.Tensor]:
    """Return the part of each weight in ``shapes`` that ``rank`` holds. Of a file, only the parts are read.

    Raises:
        UsageError: listing the weights that are missing, or whose parts do not have ``shapes``.
    """
    if isinstance(source, Mapping):
        return _shards(source, source.keys(), layouts, shapes, mesh, rank)
    if Path(source).is_dir():
        checkpoint = Checkpoint(source)
        return _shards(checkpoint, checkpoint.tensors.keys(), layouts, shapes, mesh, rank)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(source), framework="pt") as file:
            slices = _Slices(file)
            return _shards(slices, set(file.keys()), layouts, shapes, mesh, rank)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"'{os.fspath(source)}' is no safetensors file that can be read: {error}") from error


class _Slices:
    """Tensors of a file, which are read when they are sliced."""

    def __init__(self, file: Any):
        self._file = file

    def __getitem__(self, name: str) -> Any:
        return self._file.get_slice(name)


def _shards(
    source: Any,
    names: Any,
    layouts: Mapping[str, Layout],
    shapes: Mapping[str, tuple[int, ...]],
    mesh: Mesh,
    rank: int,
) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    wrong = [f"'{name}' is missing" for name in shapes if name not in names]
    for name, shape in shapes.items():
        if name not in names:
            continue
        whole = source[name]
        sizes = list(whole.shape if isinstance(whole, torch.Tensor) else whole.get_shape())
        bounds = _bounds(layouts[name], shape, mesh, rank)
        if len(sizes) != len(shape) or [size * parts for size, (_, parts) in zip(shape, bounds, strict=True)] != sizes:
            wrong.append(f"'{name}' has shape {sizes}, and is not {list(shape)} for each rank")
            continue
        part = whole[tuple(slice(size * at, size * (at + 1)) for size, (at, _) in zip(shape, bounds, strict=True))]
        found[name] = part.contiguous()
    if wrong:
        raise UsageError(f"the weights do not fit the program on {mesh}: {'; '.join(wrong)}")
    return found


def _bounds(layout: Layout, shape: tuple[int, ...], mesh: Mesh, rank: int) -> list[tuple[int, int]]:
    """Return for each dimension which part ``rank`` holds, and of how many."""
    bounds = [(0, 1)] * len(shape)
    places = torch.unravel_index(torch.tensor(rank), tuple(size for _, size in mesh.axes))
    for dim, place, (_, size) in zip(layout, places, mesh.axes, strict=True):
        if dim is not None:  # the first axes divide into the largest parts, as DTensor does
            at, parts = bounds[dim]
            bounds[dim] = (at * size + int(place), parts * size)
    return bounds
