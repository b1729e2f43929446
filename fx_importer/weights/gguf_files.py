"""GGUF files, of llama.cpp: their metadata, and where their tensors are.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, a header, metadata, a table of tensors,
and their data. Tensors are of plain dtypes, or of blocks of weights that share scales, which the table calls a type.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from fx_importer.errors import UsageError

SUFFIX = ".gguf"
BLOCKS: dict[int, tuple[str, int, int]] = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""By number of the type: its name, the weights of a block, and its bytes."""
PLAIN: dict[int, tuple[str, str, int]] = {
    0: ("F32", "float32", 4),
    1: ("F16", "float16", 2),
    24: ("I8", "int8", 1),
    25: ("I16", "int16", 2),
    26: ("I32", "int32", 4),
    27: ("I64", "int64", 8),
    28: ("F64", "float64", 8),
    30: ("BF16", "bfloat16", 2),
}
"""By number of the type: its name, the dtype in torch, and its bytes."""
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_KEPT = 4096
"""The longest array of numbers that is read; of others, the length is."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor in a file."""

    kind: str
    """Its type, as ``"Q4_K"`` or ``"F16"``."""
    sizes: tuple[int, ...]
    """Its sizes in torch's order, the last of which is that of a row of weights."""
    dtype: str
    """In torch; uint8 for blocks."""
    offset: int
    nbytes: int

    @property
    def stored_sizes(self) -> tuple[int, ...]:
        """The sizes in ``dtype``: of blocks, the last is the bytes of a row."""
        if self.kind in {name for name, *_ in PLAIN.values()}:
            return self.sizes
        return (*self.sizes[:-1], self.nbytes // max(1, prod(self.sizes[:-1])))


@dataclass(frozen=True)
class GgufHeader:
    """Header of a GGUF file.

    Attributes:
        metadata: values by key; of arrays of strings, and of long ones, the length.
        tensors: by name.
    """

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """The architecture in the words of llama.cpp, which is the prefix of keys of the model."""
        return str(self.metadata.get("general.architecture"))


def read_header(path: Path) -> GgufHeader:
    """Read the metadata and the table of tensors of ``path``.

    Raises:
        UsageError: if it is not a complete GGUF file, or has tensors of an unknown type.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).header()
    except (OSError, ValueError, KeyError, OverflowError, MemoryError, struct.error) as error:
        raise UsageError(f"'{path}' is not a complete GGUF file: {error}") from None


class _Reader:
    """Reads values of a mapped file in order. Raises `ValueError` and `struct.error` for invalid bytes."""

    def __init__(self, data: mmap.mmap):
        self._data, self._at = data, 0

    def header(self) -> GgufHeader:
        if self._data[:4] != b"GGUF":
            raise ValueError("it does not start with 'GGUF'")
        self._at = 4
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"it is of version {version}, and versions 2 and 3 are read")
        tensors, entries = self._number("Q"), self._number("Q")
        metadata = _by_name([(self._string(), self._value(self._number("I"))) for _ in range(entries)])
        table = [self._entry() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        return GgufHeader(metadata, _by_name([(entry[0], _tensor(*entry, start)) for entry in table]))

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        """Return the name, sizes, type and offset of a tensor."""
        name, rank = self._string(), self._number("I")
        if rank > 8:
            raise ValueError(f"'{name}' has {rank} dimensions")
        sizes = tuple(self._number("Q") for _ in range(rank))
        return name, sizes[::-1], self._number("I"), self._number("Q")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(_code(kind))
        of, length = self._number("I"), self._number("Q")
        if of == _STRING:
            for _ in range(length):
                self._skip(self._number("Q"))
            return length
        code = _code(of)
        start = self._at
        self._skip(length * struct.calcsize("<" + code))
        return list(struct.unpack_from(f"<{length}{code}", self._data, start)) if length <= _KEPT else length

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        length = self._number("Q")
        start = self._at
        self._skip(length)
        return self._data[start : self._at].decode("utf-8")

    def _skip(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise ValueError("it ends early")
        self._at += size


def _code(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"a value is of the type {kind}, which is not read here")
    return _NUMBERS[kind]


def _by_name(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("a name is there twice")
    return named


def _tensor(name: str, sizes: tuple[int, ...], number: int, offset: int, start: int) -> GgufTensor:
    if (plain := PLAIN.get(number)) is not None:
        kind, dtype, itemsize = plain
        return GgufTensor(kind, sizes, dtype, start + offset, prod(sizes) * itemsize)
    if number not in BLOCKS:
        raise ValueError(f"'{name}' is of the type {number}, which is not known")
    kind, weights, nbytes = BLOCKS[number]
    if not sizes or sizes[-1] % weights:
        raise ValueError(f"'{name}' is of the type {kind}, and has rows of {sizes[-1:]} weights")
    return GgufTensor(kind, sizes, "uint8", start + offset, prod(sizes) // weights * nbytes)
