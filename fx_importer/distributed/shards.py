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
from fx_importer.json_text import parse_json

Layout = tuple["int | None", ...]
"""For each axis of a mesh, the dimension that is divided along it; None where it is repeated."""

Source = Mapping[str, torch.Tensor] | str | os.PathLike[str]
"""Whole weights by name: tensors; or the path of a safetensors file, of a folder of transformers with such files and
their index, or of a folder of torch.distributed.checkpoint."""

_INDEX, _ONE_FILE = "model.safetensors.index.json", "model.safetensors"


def read_shards(
    source: Source, layouts: Mapping[str, Layout], shapes: Mapping[str, tuple[int, ...]], mesh: Mesh, rank: int
) -> dict[str, torch.Tensor]:
    """Return the part of each weight in ``shapes`` that ``rank`` holds. Of a file, only the parts are read.

    Raises:
        UsageError: listing the weights that are missing or no tensors, or whose parts do not have ``shapes``; or if a
            file cannot be read.
    """
    if isinstance(source, Mapping):
        return _shards(source, source.keys(), layouts, shapes, mesh, rank)
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"weights are a mapping from names to tensors, or a path, and not {type(source).__name__}")
    path = Path(source)
    if path.is_dir() and not any((path / name).is_file() for name in (_INDEX, _ONE_FILE)):
        checkpoint = Checkpoint(path)
        return _shards(checkpoint, checkpoint.tensors.keys(), layouts, shapes, mesh, rank)
    from safetensors import SafetensorError

    try:
        files = _Files(path)
        return _shards(files, files.homes.keys(), layouts, shapes, mesh, rank)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"'{path}' is not a safetensors file that can be read: {error}") from error


class _Files:
    """Tensors of a safetensors file, or of those that an index of transformers lists, which are read when sliced."""

    def __init__(self, path: Path):
        if path.is_dir():
            path = path / (_INDEX if (path / _INDEX).is_file() else _ONE_FILE)
        self._opened: dict[Path, Any] = {}
        self.homes: Mapping[str, Path] = (
            _listed(path) if path.suffix == ".json" else dict.fromkeys(self._file(path).keys(), path)
        )
        """The file of each tensor."""

    def __getitem__(self, name: str) -> Any:
        return self._file(self.homes[name]).get_slice(name)

    def _file(self, path: Path) -> Any:
        from safetensors import safe_open

        if path not in self._opened:
            self._opened[path] = safe_open(path, framework="pt")
        return self._opened[path]


def _listed(index: Path) -> dict[str, Path]:
    """Return the file of each tensor in ``index``, which transformers has written."""
    try:
        homes: dict[str, str] = dict(parse_json(index.read_bytes())["weight_map"])
        outside = [name for name in homes.values() if Path(name).name != name]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"'{index}' is not an index of safetensors files: {type(error).__name__}: {error}") from None
    if outside:
        raise UsageError(f"'{index}' lists '{outside[0]}', which is not a file in its directory")
    return {name: index.parent / home for name, home in homes.items()}


def _shards(
    source: Any,
    names: Any,
    layouts: Mapping[str, Layout],
    shapes: Mapping[str, tuple[int, ...]],
    mesh: Mesh,
    rank: int,
) -> dict[str, torch.Tensor]:
    shards: dict[str, torch.Tensor] = {}
    wrong = [f"'{name}' is missing" for name in shapes if name not in names]
    for name, shape in shapes.items():
        if name not in names:
            continue
        whole = source[name]
        if not isinstance(whole, torch.Tensor) and not hasattr(whole, "get_shape"):
            wrong.append(f"'{name}' is of type {type(whole).__name__}")
            continue
        sizes = list(whole.shape if isinstance(whole, torch.Tensor) else whole.get_shape())
        bounds = _bounds(layouts[name], shape, mesh, rank)
        if len(sizes) != len(shape) or [size * parts for size, (_, parts) in zip(shape, bounds, strict=True)] != sizes:
            wrong.append(f"'{name}' has shape {sizes}, and is not {list(shape)} for each rank")
            continue
        part = whole[tuple(slice(size * at, size * (at + 1)) for size, (at, _) in zip(shape, bounds, strict=True))]
        shards[name] = part.contiguous()
    if wrong:
        raise UsageError(f"the weights do not fit the program on {mesh}: {'; '.join(wrong)}")
    return shards


def _bounds(layout: Layout, shape: tuple[int, ...], mesh: Mesh, rank: int) -> list[tuple[int, int]]:
    """Return for each dimension which part ``rank`` holds, and of how many."""
    bounds = [(0, 1)] * len(shape)
    places = torch.unravel_index(torch.tensor(rank), tuple(size for _, size in mesh.axes))
    for dim, place, (_, size) in zip(layout, places, mesh.axes, strict=True):
        if dim is not None:  # the first axes divide into the largest parts, as DTensor does
            at, parts = bounds[dim]
            bounds[dim] = (at * size + int(place), parts * size)
    return bounds
