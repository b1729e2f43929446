"""Temporary directories with the lifetime of an object, which outlive this process in no case."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from fx_importer.errors import DiskFullError

SCRATCH = "FX_IMPORTER_SCRATCH"
"""The environment variable of a child process with the directory of its `Scratch` objects, which its parent removes."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMOVER = """
while IFS= read -r path; do set -- "$@" "$path"; done
for path do for _ in 1 2 3 4 5; do [ -e "$path" ] || break; rm -rf -- "$path" 2>/dev/null || sleep 0.2; done; done
"""
"""A shell script that reads paths until all processes that write them have ended, and removes what is still there."""


class Scratch:
    """A new temporary directory, removed with this object, at the end of its ``with``, or at the end of the process.

    A shell removes the directories of a process that is killed, and a parent its `Child`'s.

    Raises:
        DiskFullError: if it cannot be made; from its ``with``, and from `writing`, for a full disk that the body meets.
    """

    def __init__(self) -> None:
        parent = os.environ.get(SCRATCH)
        try:
            self.path = Path(tempfile.mkdtemp(prefix="fx-importer-", dir=parent))
        except OSError as error:
            raise _not_written(error) from error
        if parent is None:
            remove_when_killed(self.path)
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._remove()
        with full_disk_errors():
            if isinstance(error, OSError):
                raise error

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for writing to it, in which a full disk raises `DiskFullError`."""
        return full_disk_errors()


def remove_when_killed(path: Path) -> None:
    """Have ``path`` removed if it is still there when this process and its forks have ended, even by SIGKILL."""
    if "\n" not in str(path):
        with contextlib.suppress(OSError):  # without a shell, or after it was ended, too
            os.write(_remover(), f"{path.absolute()}\n".encode())


def _remove(path: Path, owner: int) -> None:
    """Remove ``path``, unless this is a fork of its owner."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def full_disk_errors() -> Iterator[None]:
    """Raise `DiskFullError` where the body meets a full disk, or the limit of the size of files."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _not_written(error) from error


def _not_written(error: OSError) -> DiskFullError:
    try:
        place = os.environ.get(SCRATCH) or tempfile.gettempdir()
    except OSError:  # no directory is writable, which the message of this error says
        place = error.filename or "/tmp"
    return DiskFullError(
        f"cannot write temporary files to '{place}': {error.strerror}. Free space there, or set TMPDIR to another "
        "directory"
    )


_starting = threading.Lock()
_pipe: int | None = None


def forget_remover() -> None:
    """Let this fork start a remover of its own, since it has closed the pipe of its parent's."""
    global _pipe
    _pipe = None


def _remover() -> int:
    """Return the pipe of the process that runs `_REMOVER`, which is started by the first call."""
    global _pipe
    with _starting:
        if _pipe is None:
            reading, writing = os.pipe()
            nowhere = [(os.POSIX_SPAWN_OPEN, output, os.devnull, os.O_WRONLY, 0) for output in (1, 2)]
            try:
                os.posix_spawn(
                    "/bin/sh",
                    ["sh", "-c", _REMOVER],
                    {"PATH": os.defpath},
                    file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), *nowhere],
                    setpgroup=0,  # what kills the group of this process leaves it alive
                )
            finally:
                os.close(reading)
            _pipe = writing
    return _pipe
