"""The index of a checkpoint of torch.distributed, its pickled ``.metadata``, read as plain data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch

from fx_importer.distributed.pickle_records import Record, read_pickle
from fx_importer.json_text import read_regular

METADATA = ".metadata"
_CLASSES = "torch.distributed.checkpoint.metadata"
_STORAGE = "torch.distributed.checkpoint.filesystem"
_MAX_DIMENSIONS = _MAX_FIELDS = 64


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor, and the slice of a file that holds it as ``torch.save`` wrote it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: Path
    offset: int
    length: int

    def overlap(self, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[slice, ...] | None:
        """Return the part within the box at ``offsets`` of ``sizes``, in the tensor; None if there is none."""
        bounds = [
            slice(max(mine, other), min(mine + size, other + length))
            for mine, size, other, length in zip(self.offsets, self.sizes, offsets, sizes, strict=True)
        ]
        return tuple(bounds) if all(bound.start < bound.stop for bound in bounds) else None


@dataclass(frozen=True)
class StoredTensor:
    """The record of a tensor."""

    dtype: torch.dtype
    size: tuple[int, ...]
    chunks: tuple[Chunk, ...]


def read_index(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a checkpoint by name. Other objects in it are left out.

    Raises:
        ValueError: if the index is not what torch writes, or names files outside of ``folder``.
        OSError: if it cannot be read.
    """
    fields = _fields(read_pickle(read_regular(folder / METADATA)), _CLASSES, "Metadata")
    places = _places(fields.get("storage_data"), folder)
    tensors = {}
    for name, record in _pairs(fields.get("state_dict_metadata")):
        if not isinstance(name, str):
            raise ValueError("it has a name that is not text")
        if not _is_a(record, _CLASSES, "BytesStorageMetadata"):
            tensors[name] = _tensor(name, _fields(record, _CLASSES, "TensorStorageMetadata"), places)
    return tensors


def _places(entries: Any, folder: Path) -> dict[tuple[str, tuple[int, ...]], tuple[Path, int, int]]:
    """Return the file, offset and length of each chunk, by the name and the offsets of the tensor."""
    places = {}
    for key, value in _pairs(entries):
        index = _fields(key, _CLASSES, "MetadataIndex")
        if index.get("offset") is None:  # of an object that is not a tensor
            continue
        stored = _fields(value, _STORAGE, "_StorageInfo")
        name, path = index.get("fqn"), stored.get("relative_path")
        offset, length = stored.get("offset"), stored.get("length")
        if not isinstance(name, str) or not isinstance(path, str) or Path(path).name != path or "\0" in path:
            raise ValueError(f"it lists {str(path)[:200]!r}, which is not a file in the folder")
        if stored.get("transform_descriptors"):
            raise ValueError(f"'{name}' is stored by an extension, which is not read")
        if type(offset) is not int or type(length) is not int or offset < 0 or length < 0:
            raise ValueError(f"'{name}' has no place in '{path}'")
        file = folder / path
        inside = file.resolve().is_relative_to(folder.resolve())
        if not inside or not file.is_file() or offset + length > file.stat().st_size:
            raise ValueError(f"'{name}' is not within '{path}'")
        places[name, _size(index["offset"])] = (file, offset, length)
    return places


def _tensor(name: str, fields: dict[str, Any], places: Any) -> StoredTensor:
    properties = _of_class(fields.get("properties"), _CLASSES, "TensorProperties").state
    named = properties[0] if isinstance(properties, tuple) and properties else None
    dtype = vars(torch).get(named.name) if _is_name(named) and named.module == "torch" else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"'{name}' has no dtype")
    size, chunks = _size(fields.get("size")), dict[tuple[int, ...], Chunk]()
    for record in _list(fields.get("chunks")):
        chunk = _fields(record, _CLASSES, "ChunkStorageMetadata")
        offsets, sizes = _size(chunk.get("offsets")), _size(chunk.get("sizes"))
        if len(offsets) != len(size) or len(sizes) != len(size) or (name, offsets) not in places:
            raise ValueError(f"a part of '{name}' is not stored")
        if offsets in chunks:
            raise ValueError(f"a part of '{name}' is there twice")
        file, offset, length = places[name, offsets]
        if math.prod(sizes) * dtype.itemsize > length:
            raise ValueError(f"a part of '{name}' is larger than what is stored of it")
        chunks[offsets] = Chunk(offsets, sizes, file, offset, length)
    return StoredTensor(dtype, size, tuple(chunks.values()))


def _is_name(value: Any) -> TypeGuard[type[Record]]:
    return isinstance(value, type) and issubclass(value, Record)


def _is_a(value: Any, module: str, name: str) -> bool:
    return isinstance(value, Record) and (value.module, value.name) == (module, name)


def _of_class(value: Any, module: str, name: str) -> Record:
    if not _is_a(value, module, name):
        kind = f"{value.module}.{value.name}"[:200] if isinstance(value, Record) else type(value).__name__
        raise ValueError(f"it has {kind} where {name} is expected")
    return value


def _fields(value: Any, module: str, name: str) -> dict[str, Any]:
    """Return the attributes of an object of a class."""
    state = _of_class(value, module, name).state
    pairs = [] if state is None else list(itertools.islice(_pairs(state), _MAX_FIELDS))
    return {key: part for key, part in pairs if isinstance(key, str)}


def _pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"it has {type(value).__name__} where a dictionary is expected")
    return iter(value.items())


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"it has {type(value).__name__} where a list is expected")
    return value


def _size(value: Any) -> tuple[int, ...]:
    """Return the numbers of a `torch.Size`."""
    (numbers,) = _of_class(value, "torch", "Size").arguments or ((),)
    if not isinstance(numbers, tuple) or len(numbers) > _MAX_DIMENSIONS:
        raise ValueError("it has a shape that is none")
    if any(type(number) is not int or not 0 <= number < 2**63 for number in numbers):
        raise ValueError("it has a shape that is none")
    return numbers
