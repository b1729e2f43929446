"""What a shared library of ELF says of itself: processor, name and symbols."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from fx_importer.errors import UsageError

_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
_DYNAMIC, _SYMBOLS, _NAME = 6, 11, 14
"""Types of sections, and the tag of the name in the dynamic section."""


@dataclass(frozen=True)
class SharedObject:
    """A shared library."""

    path: Path
    architecture: str
    soname: str
    """The name by which programs load it."""
    symbols: frozenset[str] = field(repr=False)
    """The symbols that it defines."""


def read_shared_object(path: Path) -> SharedObject:
    """Read the ELF file ``path``, of 64 bits and little-endian. Raises `UsageError` for another file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}") from None
    if data[:6] != b"\x7fELF\x02\x01" or data[16:18] != b"\x03\x00":
        raise UsageError(f"'{path}' is not a shared library (ELF, 64 bits)")
    try:
        return _read(path, data)
    except (struct.error, IndexError, ValueError):
        raise UsageError(f"'{path}' is a damaged shared library") from None


def _read(path: Path, data: bytes) -> SharedObject:
    (machine,) = struct.unpack_from("<H", data, 18)
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + size * number) for number in range(count)]
    symbols: set[str] = set()
    soname = path.name
    for _, kind, _, _, offset, nbytes, link, *_ in sections:
        strings = sections[link][4] if kind in (_DYNAMIC, _SYMBOLS) else 0
        if kind == _SYMBOLS:
            for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[offset : offset + nbytes]):
                if section:
                    symbols.add(_text(data, strings + name))
        elif kind == _DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", data[offset : offset + nbytes]):
                if tag == _NAME:
                    soname = _text(data, strings + value)
    return SharedObject(path, _MACHINES.get(machine, f"machine {machine}"), soname, frozenset(symbols))


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("ascii", "replace")
