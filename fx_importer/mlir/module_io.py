"""Modules and their artifacts as files, which are written atomically."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fx_importer.diagnostics import progress
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.embedded_manifest import as_comment, with_attribute
from fx_importer.mlir.resources import byte_size, constants_in, is_resource, key_of
from fx_importer.options import Weights

ARTIFACT = ".stablehlo"
MODULES = (".mlir", ".mlirbc")
SUFFIXES = (*MODULES, ARTIFACT)
_DESCRIPTIONS = {".mlir": "text", ".mlirbc": "bytecode", ARTIFACT: "StableHLO's portable artifact"}


def check_writable(path: str | os.PathLike[str], suffixes: Sequence[str] = ()) -> Path:
    """Return ``path`` if a file can be saved there, with one of ``suffixes`` if any are given.

    Raises:
        UsageError: for another suffix, and for a directory that is missing or read-only.
    """
    path = Path(path)
    if suffixes and path.suffix not in suffixes:
        *others, last = (f"{each} ({_DESCRIPTIONS[each]})" for each in suffixes)
        raise UsageError(f"cannot save to '{path}': the suffix must be {', '.join(others)} or {last}")
    if path.is_dir():
        raise UsageError(f"cannot save to '{path}': it is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"cannot save to '{path}': the directory '{path.parent}' does not exist")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot save to '{path}': the directory '{path.parent}' is not writable")
    return path


def manifest_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the manifest of a module that is saved at ``path``."""
    return Path(path).with_suffix(".manifest.json")


def holds_weights(path: str | os.PathLike[str], policy: Weights) -> bool:
    """Whether a module saved at ``path`` contains its weights: a StableHLO artifact cannot refer to external ones."""
    return policy is Weights.INLINE or (policy is Weights.EXTERNAL and Path(path).suffix == ARTIFACT)


def save_module(
    module: ir.Module, path: str | os.PathLike[str], external: Collection[str] = (), manifest: str = ""
) -> None:
    """Write ``module`` to ``path``: text for ``.mlir``, bytecode (with locations) for ``.mlirbc``.

    Bytecode takes no extra memory; text prints every weight in hexadecimal, in four times the memory. ``external`` are
    the names of resources without data. ``manifest`` is JSON of one line to put into the file.

    Raises:
        UsageError: if the file cannot be written; nothing is left behind then.
    """
    path = check_writable(path, MODULES)
    # MLIR ends the process when the disk fills up while it writes.
    needed = _weight_bytes(module, external) * (1 if path.suffix == ".mlirbc" else 2) + 2**20
    if (free := shutil.disk_usage(path.parent).free) < needed:
        raise UsageError(f"cannot save to '{path}': it takes {needed:,} bytes, and the disk has {free:,} left")
    with atomic_file(path) as temporary:
        progress.enter(f"write {path.name}")
        if path.suffix == ".mlirbc":
            whole = with_attribute(module.operation, manifest) if manifest else module.operation
            whole.write_bytecode(str(temporary))
        else:
            with temporary.open("wb") as file:
                module.operation.print(file=file, binary=True)
                file.write(as_comment(manifest) if manifest else b"")


def copy_to_new_context(module: ir.Operation, *, unregistered: bool = False) -> ir.Module:
    """Return a copy of ``module`` in a new context, which may allow ``unregistered`` dialects."""
    with tempfile.TemporaryDirectory(prefix="fx-importer-") as folder:
        path = Path(folder, "module.mlirbc")
        with path.open("wb") as file:  # a full disk raises here, and ends the process in MLIR
            module.write_bytecode(file)
        return read_module(path, unregistered=unregistered or module.context.allow_unregistered_dialects)


def read_module(path: Path, *, unregistered: bool = False) -> ir.Module:
    """Read a module into a new context. Raises `UsageError` if the file does not exist or MLIR cannot parse it."""
    context = new_context()
    load_dialects(context)
    context.allow_unregistered_dialects = unregistered
    if not path.is_file():
        raise UsageError(f"there is no file '{path}'")
    try:
        return ir.Module.parseFile(str(path), context)
    except ir.MLIRError as error:
        raise UsageError(f"'{path}' is no module that MLIR reads: {error}") from None
    except RuntimeError as error:  # the message quotes bytes of the file that cannot be decoded
        raise UsageError(f"'{path}' is no module that MLIR reads: {error}") from None


def save_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """Write ``data`` to ``path``. Raises `UsageError` if the file cannot be written; nothing is left behind then."""
    with atomic_file(check_writable(path)) as temporary:
        temporary.write_bytes(data)


def save_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write ``text`` to ``path``. Raises `UsageError` if the file cannot be written; nothing is left behind then."""
    with atomic_file(check_writable(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def atomic_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new directory next to ``path`` that is renamed to it at the end, or removed on an exception.

    Raises:
        UsageError: if ``path`` exists already, or cannot be made.
    """
    path = Path(path).absolute()
    if path.exists():
        raise UsageError(f"'{path}' is there already: name another directory, or remove it")
    try:
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"cannot make the directory '{path}': {error.strerror or error}") from None


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a new file next to ``path`` that replaces it at the end, or is removed on an exception."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(descriptor)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot save to '{path}': {error.strerror or error}") from None


@contextmanager
def all_or_none(*paths: str | os.PathLike[str]) -> Iterator[None]:
    """Remove the files that the body has written to ``paths`` if it raises; files that existed before stay."""
    new = [path for path in map(Path, paths) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise


def _weight_bytes(module: ir.Module, external: Collection[str]) -> int:
    """Return the total size of the constant tensors of ``module`` in bytes, each counted once, splats left out."""
    found = {value for _, _, value in constants_in(module.operation)}
    return sum(
        byte_size(value) for value in found if not (external and is_resource(value) and key_of(value) in external)
    )


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
