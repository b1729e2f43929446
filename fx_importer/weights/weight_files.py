"""Tensors in files, indexed without reading them: safetensors, GGUF, and archives of engines."""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from fx_importer.engines.engine import WeightFiles
from fx_importer.engines.engine_table import all_engines
from fx_importer.errors import NotInstalledError, UsageError
from fx_importer.json_text import parse_json
from fx_importer.manifest import ValueType
from fx_importer.weights import gguf_files

SAFETENSORS, INDEX = ".safetensors", "model.safetensors.index.json"
_PIECE = 1 << 20


def archives() -> dict[str, WeightFiles]:
    """Return the file formats of engines, by suffix."""
    formats = [engine.weight_files for engine in all_engines().values()]
    return {reader.suffix: reader for reader in formats if reader is not None}


def accepted() -> str:
    """Return what weights can be read from, for error messages."""
    formats = "".join(f"an {archive.suffix} file ({archive.description}), " for archive in archives().values())
    return (
        f"a {SAFETENSORS} file, a {gguf_files.SUFFIX} file, {formats}or a directory of transformers' with "
        f"model{SAFETENSORS} or {INDEX}"
    )


@dataclass(frozen=True)
class Mapped:
    """A memory-mapped file."""

    path: Path

    @functools.cached_property
    def data(self) -> torch.Tensor:
        """The bytes of the file."""
        return torch.from_file(str(self.path), shared=False, size=self.path.stat().st_size, dtype=torch.uint8)


@dataclass(frozen=True)
class Stored:
    """A tensor in a file."""

    file: Mapped
    offset: int
    nbytes: int
    type: ValueType | None
    """None if the file does not record it."""

    def read(self, type_: ValueType) -> torch.Tensor:
        """Return the tensor, of ``type_``, mapped. The file records that type, or none."""
        dtype = getattr(torch, type_.dtype)
        data = self.file.data[self.offset : self.offset + self.nbytes]
        if self.offset % dtype.itemsize:
            data = data.clone()
        return data.view(dtype).reshape(type_.sizes)

    def sha256(self) -> str:
        """Return the hash of the bytes. They are read in pieces, since mapping would keep all of them in memory."""
        digest, left = hashlib.sha256(), self.nbytes
        with self.file.path.open("rb") as file:
            file.seek(self.offset)
            while left and (piece := file.read(min(left, _PIECE))):
                digest.update(piece)
                left -= len(piece)
        return digest.hexdigest()


def stored_in(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """Return the tensors in a file, or in the files of a directory, by name.

    Raises:
        UsageError: if the format is unknown, the file is incomplete, or it does not exist.
    """
    path = Path(path).absolute()
    if path.is_dir():
        files = [path / name for name in (f"model{SAFETENSORS}", INDEX) if (path / name).is_file()]  # as transformers
        if not files:
            raise UsageError(f"no weights in '{path}': accepted is {accepted()}")
        path = files[0]
    _check_exists(path)
    if path.name.endswith(f"{SAFETENSORS}.index.json"):
        return _read_index(path)
    if path.suffix == SAFETENSORS:
        return _read_safetensors(path)
    if (archive := archives().get(path.suffix)) is not None:
        return _read_archive(path, archive)
    if path.suffix == gguf_files.SUFFIX:
        return _read_gguf(path)
    raise UsageError(f"'{path}' holds no weights that can be read: accepted is {accepted()}")


def _check_exists(path: Path) -> None:
    try:
        exists = path.is_file()
    except OSError:  # such as for a name that is too long
        exists = False
    if not exists:
        raise UsageError(f"there is no file '{path}' to take weights from: accepted is {accepted()}")


def _read_index(index: Path) -> dict[str, Stored]:
    """Return the tensors of the safetensors files that ``index``, written by transformers, lists."""
    try:
        homes: dict[str, str] = dict(parse_json(index.read_bytes())["weight_map"])
        parts = {name: index.parent / name for name in dict.fromkeys(homes.values())}
        outside = [name for name in parts if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name]
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise UsageError(f"'{index}' is not an index of safetensors files: {type(error).__name__}: {error}") from None
    if outside:
        raise UsageError(f"'{index}' lists '{outside[0]}', which is outside of its directory")
    for part in parts.values():
        _check_exists(part)
    files = {name: _read_safetensors(part) for name, part in parts.items()}
    if missing := [f"'{name}' in '{home}'" for name, home in homes.items() if name not in files[home]]:
        raise UsageError(f"'{index}' lists what is not there: {', '.join(missing)}")
    return {name: files[home][name] for name, home in homes.items()}


def _read_safetensors(path: Path) -> dict[str, Stored]:
    try:
        with safe_open(path, framework="pt"):  # checks that the file is complete
            pass
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = parse_json(file.read(size))
        mapped = Mapped(path)
        tensors = {name: _stored(entry, mapped, 8 + size) for name, entry in header.items() if name != "__metadata__"}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"'{path}' is not a whole safetensors file: {error}") from None
    except RuntimeError as error:  # of safetensors, if the file cannot be mapped
        raise UsageError(f"'{path}' cannot be read: {error}") from None
    _check_inside(tensors, path)
    return tensors


def _read_gguf(path: Path) -> dict[str, Stored]:
    """Return the tensors of a GGUF file; quantized tensors are uint8, rows of blocks."""
    mapped = Mapped(path)
    tensors = {
        name: Stored(mapped, tensor.offset, tensor.nbytes, ValueType(tensor.dtype, tensor.stored_sizes))
        for name, tensor in gguf_files.read_header(path).tensors.items()
    }
    _check_inside(tensors, path)
    return tensors


def _stored(entry: Any, mapped: Mapped, start: int) -> Stored:
    first, end = map(int, entry["data_offsets"])
    type_ = ValueType(str(DTYPES.get(entry["dtype"], entry["dtype"])), tuple(entry["shape"]))
    return Stored(mapped, start + first, end - first, type_)


def _check_inside(tensors: Mapping[str, Stored], path: Path) -> None:
    """Raise `UsageError` for tensors that are not within the file."""
    size = path.stat().st_size
    for name, tensor in tensors.items():
        if tensor.offset < 0 or tensor.nbytes < 0 or tensor.offset + tensor.nbytes > size:
            raise UsageError(f"'{path}' is too short: '{name}' is not within the file")


DTYPES: dict[str, str] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
"""Names of dtypes in safetensors, and in torch."""


def _read_archive(path: Path, archive: WeightFiles) -> dict[str, Stored]:
    """Return the tensors of a file in the format of an engine."""
    mapped = Mapped(path)
    try:
        entries = archive.read(path)
    except NotInstalledError:
        raise
    except Exception as error:  # of the engine that reads it
        raise UsageError(f"'{path}' is not a complete file ({archive.description}): {error}") from None
    tensors = {name: Stored(mapped, offset, size, None) for name, (offset, size) in entries.items()}
    _check_inside(tensors, path)
    return tensors
