"""Parameter archives of IREE (.irpa): an index read within the bounds of the file, as IREE's own reader does not.

The format is ``iree/schemas/parameter_archive.h``, version 0: headers that may be linked, each with a table of entries
and segments for their names and data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_PREFIX = struct.Struct("<4sHHQQQ")
"""Magic, version, the size of the header, the offset of the next one, flags."""
_HEADER = struct.Struct("<Q6Q")
"""The number of entries; offset and length of the segments of entries, names and data."""
_ENTRY = struct.Struct("<QIQ5Q")
"""Size, type, flags; offset and length of the name and of other data of the entry; alignment."""
_RANGE = struct.Struct("<2Q")
_MAGIC, _ALIGNMENT = b"IRPA", 16
_SKIP, _SPLAT, _DATA = range(3)
_MAX_NAME = 1 << 16


@dataclass(frozen=True)
class _Segment:
    offset: int
    length: int

    def part(self, offset: int, length: int, what: str) -> _Segment:
        """Return a part of this segment. Raises ValueError if it is not within."""
        if not length:
            return _Segment(self.offset, 0)
        if offset + length > self.length:
            raise ValueError(f"{what} of {length} bytes at {offset} is not within {self.length} bytes")
        return _Segment(self.offset + offset, length)


def read_archive(path: Path) -> dict[str, tuple[int, int]]:
    """Return the offset and the size in bytes of each tensor in a parameter archive.

    Raises:
        ValueError: if the file is damaged, or of another version.
        OSError: if it cannot be read.
    """
    tensors: dict[str, tuple[int, int]] = {}
    with path.open("rb") as file:
        whole = _Segment(0, path.stat().st_size)
        offset: int | None = 0
        while offset is not None:
            offset = _read_header(file, whole, offset, tensors)
    return tensors


def _read_header(file: BinaryIO, whole: _Segment, base: int, tensors: dict[str, tuple[int, int]]) -> int | None:
    """Add the entries of the header at ``base`` to ``tensors``, and return the offset of the next header, if any."""
    header = _bytes(file, whole.part(base, _PREFIX.size + _HEADER.size, "a header"))
    magic, major, minor, size, following, _ = _PREFIX.unpack_from(header)
    if magic != _MAGIC:
        raise ValueError("it does not start with IRPA")
    if (major, minor, size) != (0, 0, len(header)):
        raise ValueError(f"version {major}.{minor} with a header of {size} bytes is not read")
    count, *bounds = _HEADER.unpack_from(header, _PREFIX.size)
    inside = whole.part(base, whole.length - base, "an archive")
    entries, names, data = (
        inside.part(offset, length, "a segment") for offset, length in zip(bounds[::2], bounds[1::2], strict=True)
    )
    at = 0
    for _ in range(count):
        record = entries.part(at, _ENTRY.size, "an entry")
        entry_size, kind, _, name_at, name_length, _, _, _ = _ENTRY.unpack(_bytes(file, record))
        record = entries.part(at, max(entry_size, _ENTRY.size), "an entry")
        if name_length > _MAX_NAME:
            raise ValueError(f"a name of {name_length} bytes is not read")
        name = _bytes(file, names.part(name_at, name_length, "a name")).decode()
        if kind == _DATA:
            stored = _RANGE.unpack(_bytes(file, record.part(_ENTRY.size, _RANGE.size, "an entry")))
            place = data.part(*stored, what=f"'{name}'")
            if name in tensors:
                raise ValueError(f"'{name}' is there twice")
            tensors[name] = (place.offset, place.length)
        elif kind not in (_SKIP, _SPLAT):
            raise ValueError(f"an entry of type {kind} is not read")
        at += -(-record.length // _ALIGNMENT) * _ALIGNMENT
    return base + following if following else None


def _bytes(file: BinaryIO, segment: _Segment) -> bytes:
    file.seek(segment.offset)
    read = file.read(segment.length)
    if len(read) != segment.length:
        raise ValueError(f"it ends before {segment.length} bytes at {segment.offset}")
    return read
