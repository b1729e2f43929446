"""Weight files that a library maps: the model's own, and one that is written, in safetensors."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fx_importer.engines.jit.weight_table import Resource
from fx_importer.mlir.bindings import ir
from fx_importer.native.library import Part, WeightFile
from fx_importer.rewrites.llvm.weight_hoisting import FILE_ALIGNMENT, HoistedWeight, file_aligned
from fx_importer.weights.weight_files import Mapped


class MappedBlock:
    """Files of the caller as the beginning of the block of weights, whole, one after the other."""

    def __init__(self, mapped: Sequence[Mapped]):
        self.files: list[WeightFile] = []
        self._starts = [file.data.data_ptr() for file in mapped]
        for file in mapped:
            header, check = _header(file), _Check()
            check.add(header)
            for start in samples(len(header), file.data.numel()):
                check.add(file.data[start : start + SAMPLE].numpy().tobytes())
            offset = file_aligned(end_of(self.files))
            self.files.append(WeightFile(file.path.name, file.data.numel(), len(header), 0, offset, check.value))

    def place_of(self, data: np.ndarray) -> int | None:
        """Return the place in the block of an array that aliases a file; None for others."""
        address = data.ctypes.data
        for start, file in zip(self._starts, self.files, strict=True):
            if start <= address < start + file.nbytes:
                return file.place + address - start
        return None

    def weights(self, resources: Sequence[Resource]) -> list[HoistedWeight]:
        """Return the weights of ``resources`` that alias the files."""
        hoisted: list[HoistedWeight] = []
        for number, resource in enumerate(resources):
            if (offset := self.place_of(resource.data)) is not None:
                shape = tuple(ir.RankedTensorType(resource.value.type).shape)
                hoisted.append(
                    HoistedWeight(number, shape, resource.data.nbytes // max(math.prod(shape), 1), None, offset)
                )
        return hoisted


def end_of(files: Sequence[WeightFile]) -> int:
    """Return the bytes of the block that consists of ``files``."""
    return files[-1].place + files[-1].nbytes - files[-1].skipped if files else 0


def _header(mapped: Mapped) -> bytes:
    """Return what is before the tensors of a file, which says where they are."""
    from fx_importer.weights import stored_in

    first = min((tensor.offset for tensor in stored_in(mapped.path).values()), default=mapped.data.numel())
    return mapped.data[:first].numpy().tobytes()


class _Check:
    """The hash FNV-1a."""

    def __init__(self):
        self.value = 14695981039346656037

    def add(self, data: bytes) -> None:
        """Hash ``data`` too."""
        for byte in data:
            self.value = (self.value ^ byte) * 1099511628211 % (1 << 64)


SAMPLE = 16
"""The size in bytes of a sample of a file."""


def samples(header: int, nbytes: int) -> Sequence[int]:
    """Return where the samples are that tell files of one layout apart: all pages would have to be read otherwise."""
    step = max((nbytes - header) // 256, 1)
    return range(header, nbytes, step)


def write_file(path: Path, parts: Sequence[Part], block: Path, place: int) -> WeightFile:
    """Write ``block``, whose tensors are ``parts``, as a file of the format safetensors, for ``place``."""
    before = _file_header(parts, block)
    with path.open("wb") as file, block.open("rb") as weights:
        file.write(before)
        shutil.copyfileobj(weights, file, 1 << 20)
    check = _Check()
    check.add(before)
    nbytes = path.stat().st_size
    with path.open("rb") as file:
        for start in samples(len(before), nbytes):
            file.seek(start)
            check.add(file.read(SAMPLE))
    return WeightFile(path.name, nbytes, len(before), len(before), place, check.value)


def _file_header(parts: Sequence[Part], block: Path) -> bytes:
    """Return what stands before the ``block``: a length and JSON, which end where a file can be mapped from."""
    tensors: dict[str, object] = {"__metadata__": {"format": "fx-importer", "sha256": _digest(block)}}
    end = 0
    for part in parts:
        if part.offset > end:  # the format has no gaps
            tensors[f"__padding_{end}__"] = _tensor("U8", [part.offset - end], end, part.offset)
        tensors[part.name] = _tensor(part.dtype, list(part.shape), part.offset, end := part.offset + part.nbytes)
    if (size := block.stat().st_size) > end:
        tensors[f"__padding_{end}__"] = _tensor("U8", [size - end], end, size)
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % FILE_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
