"""On-disk store with atomic writes, a size limit and eviction of the least recently used entries."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from fx_importer.errors import UsageError

DIRECTORY = "FX_IMPORTER_CACHE_DIR"
LIMIT = "FX_IMPORTER_CACHE_BYTES"

_SUFFIX = ".lowered"
_NEW = ".new"
_MAGIC = b"fx_importer lowered 1\n"
_DEFAULT_LIMIT = 2 << 30
_LARGEST_PART = 8
"""Largest fraction of the limit that one entry may take, so that it does not evict all others."""
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is removed."""


@dataclass(frozen=True)
class Store:
    """Entries by key, as files. Any number of processes may use it at once.

    Unreadable entries count as missing, and failures to write are ignored. So do entries that another user may have
    written: an entry is code that runs in this process.
    """

    directory: Path
    limit: int
    """Limit in bytes."""

    def get(self, key: str) -> bytes | None:
        """Return an entry and mark it as recently used."""
        path = self._path(key)
        try:
            check_private(self.directory)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe is not waited for
            with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - it is a descriptor
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                content = file.read()
        except OSError:
            return None
        start = len(_MAGIC) + hashlib.sha256().digest_size
        data = content[start:]
        if content[:start] != _MAGIC + hashlib.sha256(data).digest():
            _remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> bool:
        """Store an entry. Return whether that succeeded."""
        if len(data) > self.limit // _LARGEST_PART:
            return False
        try:
            make_private(self.directory)
            descriptor, name = tempfile.mkstemp(dir=self.directory, suffix=_NEW)
            try:
                with open(descriptor, "wb") as file:  # noqa: PTH123 - it is a descriptor
                    file.write(_MAGIC + hashlib.sha256(data).digest() + data)
                Path(name).replace(self._path(key))
            finally:
                Path(name).unlink(missing_ok=True)
            self._remove_oldest()
        except OSError:
            return False
        return True

    def entries(self) -> list[tuple[Path, os.stat_result]]:
        """Return the files of entries, the least recently used first."""
        return sorted(self._files(_SUFFIX), key=lambda entry: entry[1].st_mtime_ns)

    def clear(self) -> int:
        """Remove all entries and return their number.

        Raises:
            UsageError: if one cannot be removed.
        """
        paths = [path for path, _ in (*self._files(_SUFFIX), *self._files(_NEW))]
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot clear the cache in '{self.directory}': {error.strerror or error}") from None
        return len([path for path in paths if path.suffix == _SUFFIX])

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{_SUFFIX}"

    def _files(self, suffix: str) -> Iterator[tuple[Path, os.stat_result]]:
        with contextlib.suppress(OSError), os.scandir(self.directory) as files:
            for file in files:
                if file.name.endswith(suffix):
                    with contextlib.suppress(OSError):  # another process may have removed it
                        yield Path(file.path), file.stat()

    def _remove_oldest(self) -> None:
        entries = self.entries()
        total = sum(status.st_size for _, status in entries)
        for path, status in entries:
            if total <= self.limit:
                break
            _remove(path)
            total -= status.st_size
        for path, status in self._files(_NEW):
            if time.time() - status.st_mtime > _ABANDONED:
                _remove(path)


def make_private(directory: Path) -> None:
    """Make ``directory``, for this user only, unless it exists. Raises OSError as `check_private` does."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    check_private(directory)


def check_private(directory: Path) -> None:
    """Raise OSError if another user may write to ``directory``."""
    status = directory.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"'{directory}' can be written by other users: chmod 700 it, or name another directory")


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def users_store() -> Store:
    """Return the store in ``FX_IMPORTER_CACHE_DIR``, or in the user's cache directory by default.

    Raises:
        UsageError: if ``FX_IMPORTER_CACHE_BYTES`` is not a number.
    """
    chosen = os.environ.get(DIRECTORY)
    path = Path(chosen) if chosen else platformdirs.user_cache_path("fx_importer") / "lowered"
    text = os.environ.get(LIMIT) or str(_DEFAULT_LIMIT)
    if not text.isdecimal():
        raise UsageError(f"{LIMIT}={text!r} is not a number of bytes")
    return Store(path, int(text))
