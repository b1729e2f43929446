"""Output files, checked before the work, and written whole or not at all. `doctor` imports this, so no MLIR here."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fx_importer.errors import UsageError
from fx_importer.process.scratch import remove_when_killed

_DESCRIPTIONS = {
    ".mlir": "text",
    ".mlirbc": "bytecode",
    ".stablehlo": "StableHLO's portable artifact",
    ".html": "a page",
    ".json": "its data",
}
"""Of the suffixes between which one chooses."""


def check_writable(path: str | os.PathLike[str], suffixes: Sequence[str] = ()) -> Path:
    """Return ``path`` if a file can be saved there, with one of ``suffixes`` if any are given.

    Raises:
        UsageError: for another suffix, for ``-``, and for a directory that is missing or read-only.
    """
    path = Path(path)
    if suffixes and path.suffix not in suffixes:
        names = [f"{suffix} ({_DESCRIPTIONS[suffix]})" if suffix in _DESCRIPTIONS else suffix for suffix in suffixes]
        accepted = " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        raise UsageError(f"cannot save to '{path}': the suffix must be {accepted}")
    if str(path) == "-":
        raise UsageError("cannot save to '-': this is not written to standard output; name a file")
    if path.is_dir():
        raise UsageError(f"cannot save to '{path}': it is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"cannot save to '{path}': the directory '{path.parent}' does not exist")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot save to '{path}': the directory '{path.parent}' is not writable")
    return path


def check_directory(path: str | os.PathLike[str], *, new: bool = False) -> Path:
    """Return ``path`` if it is a writable directory, or one that can be made; with ``new``, only the latter.

    Raises:
        UsageError: for any other.
    """
    path = Path(path)
    if new and path.exists():
        raise UsageError(f"'{path}' is there already: name another directory, or remove it")
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise UsageError(f"cannot make the directory '{path}': '{existing}' is a file")
    if not os.access(existing, os.W_OK):
        raise UsageError(f"cannot save to '{path}': the directory '{existing}' is not writable")
    return path


def save_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """Write ``data`` to ``path``. Raises `UsageError` if the file cannot be written; nothing is left behind then."""
    with atomic_file(check_writable(path)) as temporary:
        temporary.write_bytes(data)


def save_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write ``text`` to ``path``. Raises `UsageError` if the file cannot be written; nothing is left behind then."""
    with atomic_file(check_writable(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_files(files: Mapping[Path, bytes]) -> None:
    """Write files, all or none, and make their directories.

    Raises:
        UsageError: if one cannot be written; no new files and directories are left then.
    """
    directories = [parent for parent in dict.fromkeys(path.parent for path in files) if not parent.exists()]
    try:
        with all_or_none(*files):
            for path, data in files.items():
                _make_directory(path.parent)
                save_bytes(data, path)
    except UsageError:
        for directory in directories:
            with suppress(OSError):  # it was not made
                directory.rmdir()
        raise


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the directory '{path}': {error.strerror or error}") from None


class _LateErrors(io.BytesIO):
    """A file whose `write` drops what a full disk does not take: torch ends the process for exceptions.

    It has the type that ``torch.export.save`` asks for.
    """

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def seek(self, *_: Any) -> int:
        return 0  # to the start, once it is written

    def write(self, data: Any, /) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)


@contextmanager
def file_for_torch(path: Path) -> Iterator[io.BytesIO]:
    """Yield a file for ``torch.save`` or ``torch.export.save``. A full disk raises `OSError`.

    With a path, torch raises a RuntimeError for it, or ends the process.
    """
    with path.open("wb") as file:
        late = _LateErrors(file)
        yield late
    if late.error is not None:
        raise late.error


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
        remove_when_killed(temporary)
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"cannot make the directory '{path}': {error.strerror or error}") from None


@contextmanager
def complete_directory(path: Path) -> Iterator[Path]:
    """Yield a new directory whose files are moved to ``path`` at the end, or removed on an exception.

    Files that ``path`` has under other names stay there. Raises `OSError` if it cannot be made.
    """
    path = path.resolve()
    made = [parent for parent in (path, *path.parents) if not parent.exists()]
    path.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))  # relative paths are the same there
    remove_when_killed(temporary)
    try:
        yield temporary
        files = [path_ for path_ in temporary.rglob("*") if not path_.is_dir()]
        for file in files:
            (path / file.relative_to(temporary)).parent.mkdir(parents=True, exist_ok=True)
            file.replace(path / file.relative_to(temporary))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        for directory in made:
            with suppress(OSError):  # it has files
                directory.rmdir()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a new file next to ``path`` that replaces it at the end, or is removed on an exception."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(descriptor)
        temporary = Path(name)
        remove_when_killed(temporary)
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


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
