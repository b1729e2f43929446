"""Modules and their artifacts as files. The manifest is an attribute in bytecode, and a comment at the end of text."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from fx_importer.diagnostics import progress
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, load_dialects, new_context, write_bytecode
from fx_importer.mlir.output_files import atomic_file, check_writable
from fx_importer.mlir.resources import byte_size, constants_in, is_resource, key_of
from fx_importer.options import Weights
from fx_importer.process.scratch import Scratch

ARTIFACT = ".stablehlo"
MODULES = (".mlir", ".mlirbc")
SUFFIXES = (*MODULES, ARTIFACT)


def manifest_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the manifest of a module that is saved at ``path``."""
    return Path(path).with_suffix(".manifest.json")


def holds_weights(path: str | os.PathLike[str], policy: Weights) -> bool:
    """Whether a module saved at ``path`` contains its weights: a StableHLO artifact cannot refer to external ones."""
    return policy is Weights.INLINE or (policy is Weights.EXTERNAL and Path(path).suffix == ARTIFACT)


def save_module(
    module: ir.Module,
    path: str | os.PathLike[str],
    external: Collection[str] = (),
    manifest: str = "",
    locations: bool = False,
) -> None:
    """Write ``module`` to ``path``: text for ``.mlir``, bytecode (with locations) for ``.mlirbc``.

    Bytecode takes no extra memory; text prints every weight in hexadecimal, in four times the memory. ``external`` are
    the names of resources without data. ``manifest`` is JSON of one line to put into the file. ``locations`` prints
    locations in text, too.

    Raises:
        UsageError: if the file cannot be written; nothing is left behind then.
    """
    path = check_writable(path, MODULES)
    needed = _weight_bytes(module, external) * (1 if path.suffix == ".mlirbc" else 2) + 2**20
    if (free := shutil.disk_usage(path.parent).free) < needed:
        raise UsageError(f"cannot save to '{path}': it takes {needed:,} bytes, and the disk has {free:,} left")
    with atomic_file(path) as temporary:
        progress.enter(f"write {path.name}")
        if path.suffix == ".mlirbc":
            whole = with_attribute(module.operation, manifest) if manifest else module.operation
            write_bytecode(whole, temporary)
        else:
            with temporary.open("wb") as file:
                module.operation.print(file=file, binary=True, enable_debug_info=locations)
                file.write(as_comment(manifest) if manifest else b"")


def copy_to_new_context(module: ir.Operation, *, unregistered: bool = False) -> ir.Module:
    """Return a copy of ``module`` in a new context, which may allow ``unregistered`` dialects."""
    with Scratch() as folder:
        path = folder / "module.mlirbc"
        write_bytecode(module, path)
        return read_module(path, unregistered=unregistered or module.context.allow_unregistered_dialects)


def read_module(path: Path, *, unregistered: bool = False) -> ir.Module:
    """Read a module into a new context. Raises `UsageError` if the file does not exist or MLIR cannot parse it."""
    context = new_context()
    load_dialects(context)
    context.allow_unregistered_dialects = unregistered
    check_module_file(path)
    try:
        return ir.Module.parseFile(str(path), context)
    except ir.MLIRError as error:
        raise UsageError(f"'{path}' is not a module that MLIR reads: {error}") from None
    except RuntimeError as error:  # the message quotes bytes of the file that cannot be decoded
        raise UsageError(f"'{path}' is not a module that MLIR reads: {error}") from None


def check_module_file(path: Path) -> None:
    """Raise `UsageError` if there is no file, or nothing in it: MLIR would read a module without functions."""
    if not path.is_file():
        raise UsageError(f"there is no file '{path}'")
    if not path.stat().st_size:
        raise UsageError(f"'{path}' is empty: it holds no module")


def _weight_bytes(module: ir.Module, external: Collection[str]) -> int:
    """Return the total size of the constant tensors of ``module`` in bytes, each counted once, splats left out."""
    values = {value for _, _, value in constants_in(module.operation)}
    return sum(
        byte_size(value) for value in values if not (external and is_resource(value) and key_of(value) in external)
    )


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
    manifest = attributes[ATTRIBUTE]
    del attributes[ATTRIBUTE]
    return manifest.value if isinstance(manifest, ir.StringAttr) else None


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
