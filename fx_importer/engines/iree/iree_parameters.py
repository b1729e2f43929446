"""Weights as IREE parameters, which a module loads from memory or a file when it runs, and the index of the file.

A parameter is an operation, ``util.global.load``: so resources are not replaced by attributes, as weight handles are.
"""

from __future__ import annotations

import errno
import importlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fx_importer.errors import NotInstalledError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, replace
from fx_importer.mlir.module_io import copy_to_new_context
from fx_importer.mlir.resources import key_of, resources_in
from fx_importer.process.optional_packages import is_installed

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
            part = data.part(*stored, what=f"'{name}'")
            if name in tensors:
                raise ValueError(f"'{name}' is there twice")
            tensors[name] = (part.offset, part.length)
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


SCOPE = "model"
"""The default scope of parameters."""


def with_parameters(module: ir.Module, names: Mapping[str, str], scope: str = SCOPE) -> str:
    """Return ``module`` as text for IREE, with its resources replaced by parameters of ``scope``.

    ``names`` maps names of resources to names of parameters. The module does not change.
    """
    new = copy_to_new_context(module.operation, unregistered=True)  # IREE's dialects are not in the wheel
    made: dict[tuple[str, ir.Type], ir.Attribute] = {}
    for op, _, value in resources_in(new.operation):
        if (key := key_of(value)) not in names:
            continue
        with new.context, op.location:
            in_torch = op.name == "torch.vtensor.literal"  # signed integers; the converted ones are signless
            kind = ir.Type.parse(re.sub(r"(x|<)[su]i(\d+)", r"\1i\2", str(value.type))) if in_torch else value.type
            if (key, kind) not in made:
                made[key, kind] = _declare_parameter(new, f"fx_importer.weight.{len(made)}", kind, scope, names[key])
        emit = Emitter.before(op)
        loaded = emit.op("util.global.load", [kind], (), {"global": made[key, kind]}).result
        replace(op, emit.value("torch_c.from_builtin_tensor", op.results[0].type, loaded) if in_torch else loaded)
    return new.operation.get_asm(print_generic_op_form=True)


def _declare_parameter(module: ir.Module, symbol: str, kind: ir.Type, scope: str, name: str) -> ir.Attribute:
    """Declare a parameter in ``module``, and return the reference to it."""
    spelled = [ir.StringAttr.get(text) for text in (scope, name)]
    Emitter(ir.InsertionPoint.at_block_begin(module.body), ir.Location.current).op(
        "util.global",
        [],
        attributes={
            "sym_name": ir.StringAttr.get(symbol),
            "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(kind),
            "initial_value": ir.Attribute.parse(f"#stream.parameter.named<{spelled[0]}::{spelled[1]}> : {kind}"),
        },
    )
    return ir.FlatSymbolRefAttr.get(symbol)


def write_archive(tensors: Mapping[str, np.ndarray[Any, Any]], path: Path) -> None:
    """Write a parameter archive with the bytes of tensors."""
    if not is_installed("iree.runtime"):
        raise NotInstalledError("an IREE parameter archive", "iree.runtime", "iree")
    index = importlib.import_module("iree.runtime").ParameterIndex()
    for name, data in tensors.items():
        index.add_buffer(name, data)
    try:
        index.create_archive_file(str(path))
    except (IndexError, RuntimeError, ValueError) as error:  # IREE's status, as out of range
        raise OSError(errno.ENOSPC, f"IREE could not write it: {error}") from error
