"""The manifest of a module inside its file: an attribute in bytecode, a comment at the end of text."""

from __future__ import annotations

import mmap
from pathlib import Path

from fx_importer.mlir.bindings import ir

ATTRIBUTE = "fx_importer.manifest"
_COMMENT = f"// {ATTRIBUTE}: ".encode()


def with_attribute(module: ir.Operation, manifest: str) -> ir.Operation:
    """Return a copy of ``module`` with ``manifest`` as an attribute. The copy shares the weights."""
    copy = module.clone()
    copy.attributes[ATTRIBUTE] = ir.StringAttr.get(manifest, module.context)
    return copy


def as_comment(manifest: str) -> bytes:
    """Return ``manifest``, JSON of one line, as the last line of a file in MLIR's text form."""
    return _COMMENT + manifest.encode() + b"\n"


def take_manifest(module: ir.Module, path: Path) -> str | None:
    """Return the manifest in ``module``, which was read from ``path``, without its attribute; None if there is none."""
    attributes = module.operation.attributes
    if ATTRIBUTE not in attributes:
        return _last_comment(path)
    found = attributes[ATTRIBUTE]
    del attributes[ATTRIBUTE]
    return found.value if isinstance(found, ir.StringAttr) else None


def _last_comment(path: Path) -> str | None:
    """Return the manifest in the last line, which is searched from the end: text may hold gigabytes of weights."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            start = data.rfind(b"\n", 0, len(data) - 1) + 1
            if data[start : start + len(_COMMENT)] != _COMMENT:
                return None
            return data[start + len(_COMMENT) :].decode("utf-8", "replace")
