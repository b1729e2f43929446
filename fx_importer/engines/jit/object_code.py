"""Loading of object files: relocatable ELF for x86-64, as LLVM writes it for the JIT, into memory of this process.

The JIT's code model is the large one: every reference to a symbol is an absolute address of 64 bits. There is one kind
of relocation to apply, and no stubs are needed for distant symbols. Nothing unwinds through compiled code, which
leaves by longjmp: its frames are not registered.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
"""Whether the object files of this machine can be loaded."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_MAGIC = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64, _ABSOLUTE = 1, 62, 1
_SYMTAB, _RELA, _NOBITS, _UNWIND = 2, 4, 8, 0x70000001
_ALLOC, _EXECUTABLE, _THREAD_LOCAL = 2, 4, 0x400
_PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    target: int
    alignment: int

    @property
    def loaded(self) -> bool:
        return bool(self.flags & _ALLOC) and bool(self.size) and self.kind != _UNWIND


class ObjectCode:
    """The code of an object file, in executable memory that lives as long as this object."""

    def __init__(self, data: bytes, symbols: Mapping[str, int]):
        """Load ``data``. Undefined symbols are looked up in ``symbols``, or else to libraries of this process.

        Raises:
            ValueError: if it is not such an object file, or a symbol is missing.
            OSError: if the system refuses executable memory.
        """
        try:
            self._load(data, symbols)
        except (struct.error, IndexError, TypeError) as error:
            raise ValueError(f"the object file is damaged: {error}") from None

    def __getitem__(self, name: str) -> int:
        """Return the address of the function ``name``, as MLIR's engine does: of its wrapper that takes one pointer."""
        return self._defined[f"_mlir_{name}"]

    def _load(self, data: bytes, symbols: Mapping[str, int]) -> None:
        sections = _sections(data)
        starts, code_size, size = _places(sections)
        self._memory = mmap.mmap(-1, max(size, _PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for number, start in starts.items():
            header = sections[number]
            if header.kind != _NOBITS:
                self._memory[start : start + header.size] = _slice(data, header)
        table = next(section for section in sections if section.kind == _SYMTAB)
        names = _slice(data, sections[table.link])
        self._defined: dict[str, int] = {}
        addresses: list[int] = []
        for symbol in np.frombuffer(_slice(data, table), _SYMBOL):
            name = names[symbol["name"] : names.index(b"\0", symbol["name"])].decode()
            section = int(symbol["section"])
            if section in starts:
                address = begin + starts[section] + int(symbol["value"])
                self._defined[name] = address
            else:
                address = 0 if section or not name else _external(name, symbols)
            addresses.append(address)
        for header in sections:
            if header.kind == _RELA and header.target in starts:
                self._relocate(starts[header.target], sections[header.target].size, _slice(data, header), addresses)
        if code_size and _process.mprotect(begin, code_size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise PermissionError("the system refuses executable memory")

    def _relocate(self, start: int, size: int, data: bytes, addresses: list[int]) -> None:
        for relocation in np.frombuffer(data, _RELOCATION):
            offset, address = int(relocation["offset"]), addresses[relocation["symbol"]]
            if relocation["type"] != _ABSOLUTE or not address or offset + 8 > size:
                raise ValueError(f"a relocation of type {relocation['type']} at {offset} cannot be applied")
            struct.pack_into("<Q", self._memory, start + offset, (address + int(relocation["addend"])) & (1 << 64) - 1)


def _sections(data: bytes) -> list[_Section]:
    ident, kind, machine, *_, table, _, _, _, _, entry_size, count, _ = _HEADER.unpack_from(data)
    if not ident.startswith(_MAGIC) or (kind, machine, entry_size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise ValueError("not a relocatable object file for x86-64")
    sections: list[_Section] = []
    for number in range(count):
        _, kind, flags, _, offset, size, link, info, alignment, _ = _SECTION.unpack_from(
            data, table + number * entry_size
        )
        if flags & _ALLOC and flags & _THREAD_LOCAL:
            raise ValueError("it has variables of threads")
        sections.append(_Section(kind, flags, offset, size, link, info, alignment))
    return sections


def _places(sections: list[_Section]) -> tuple[dict[int, int], int, int]:
    """Return the offset of each section in memory, the size of the code, at the beginning, and the total size."""
    starts: dict[int, int] = {}
    end = code_size = 0
    for executable in (True, False):
        for number, section in enumerate(sections):
            if section.loaded and bool(section.flags & _EXECUTABLE) == executable:
                starts[number] = -(-end // max(section.alignment, 1)) * max(section.alignment, 1)
                end = starts[number] + section.size
        end = -(-end // _PAGE) * _PAGE
        if executable:
            code_size = end
    return starts, code_size, end


def _slice(data: bytes, section: _Section) -> bytes:
    part = data[section.offset : section.offset + section.size]
    if len(part) != section.size:
        raise ValueError("the object file is truncated")
    return part


_process = ctypes.CDLL(None)
_process.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _external(name: str, symbols: Mapping[str, int]) -> int:
    if name in symbols:
        return symbols[name]
    try:
        return ctypes.cast(getattr(_process, name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise ValueError(f"the function {name} is missing") from None
