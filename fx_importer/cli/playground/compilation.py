"""Compilation of an edited program, in a process of its own: a fork of one that has imported torch; and its result."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fx_importer.cli.playground.child import COMPILE, MODULE, PREPARE
from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.forking_process import ForkingProcess
from fx_importer.process.one_shot import output_of
from fx_importer.process.scratch import Scratch

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS")
"""Environment variables that the process sees, besides ``PYTHONPATH``, and ``HOME`` and ``TMPDIR`` of its own."""

_CONTENTS, _RESULT = "contents.json", "result.json"
_LONGEST_CONTENTS, _LONGEST_RESULT = 64 << 20, 1 << 20
"""Bytes of what the explorer shows, and of the message."""
_REMOVE_SECONDS = 60
"""Seconds in which the directory of a program is removed; what is left then stays."""
_FEW = 100
"""Files that are removed without a process."""


@dataclass(frozen=True)
class EditOutcome:
    """The result of an edit."""

    message: str
    """The error; empty if there is none."""
    contents: str | None
    """What the explorer shows, as JSON (not checked); None if there is nothing to show."""


def passed_on() -> dict[str, str]:
    """Return the environment variables of this process that may be seen."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def new_worker() -> ForkingProcess:
    """Return a process that prepares for compilations, without waiting for it. Compilations have one thread."""
    return ForkingProcess(PREPARE, {**passed_on(), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})


def compile_source(
    source: str,
    output_type: str,
    limits: Limits,
    worker: ForkingProcess | None = None,
    note: Callable[[str], None] = lambda _stage: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> EditOutcome:
    """Return the outcome of lowering ``build`` of the Python program ``source`` within ``limits``.

    It runs in a fork of ``worker``, or of a new one. ``note`` is called with its stages, ``cancelled`` now and then: if
    it returns True, the fork is killed and `CancelledError` raised. The fork has a new directory, and only the
    environment variables in `PASSED_ON`. What it leaves there is read as regular files of bounded sizes, whatever the
    program has put in their place.
    """
    with _directory() as path, _opened(path) as directory, contextlib.ExitStack() as stack:
        running = worker or stack.enter_context(contextlib.closing(new_worker()))
        (path / f"{MODULE}.py").write_text(source, encoding="utf-8")
        own = {"HOME": str(path), "TMPDIR": str(path), "HF_HUB_OFFLINE": "1"}
        try:
            running.run(
                "the program",
                COMPILE,
                output_type,
                path / _CONTENTS,
                path / _RESULT,
                limits=limits,
                environment={**passed_on(), **own},
                directory=path,
                note=note,
                cancelled=cancelled,
            )
            message, has_contents = _parsed(read_result(directory, _RESULT, _LONGEST_RESULT))
            contents = read_result(directory, _CONTENTS, _LONGEST_CONTENTS) if has_contents else None
        except CrashedError as error:
            return EditOutcome(str(error), None)
        except (OSError, ValueError) as error:  # the program may write over the files
            return EditOutcome(f"the program ended without a result: {error}", None)
        return EditOutcome(message.replace(f"{path}/", ""), contents)


def _parsed(result: str) -> tuple[str, bool]:
    """Return the message, and whether there are contents. Raises `ValueError` for anything else than these."""
    try:
        answer = json.loads(result)
    except RecursionError:
        raise ValueError(f"'{_RESULT}' is nested too deeply") from None
    match answer:
        case {"message": str(message), "contents": bool(contents)}:
            return message, contents
    raise ValueError(f"'{_RESULT}' does not hold a message and whether there are contents")


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """Yield a new directory, and remove it. A program can nest directories deeper than Python removes."""
    with Scratch() as scratch:
        path = scratch.resolve()
        try:
            yield path
        finally:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if not _without_folders(path):
                    output_of(["rm", "-rf", "--", str(path)], _REMOVE_SECONDS)


def _without_folders(path: Path) -> bool:
    """Return whether the directory ``path`` has few entries and no directory, which Python removes at once."""
    with os.scandir(path) as entries:
        first = list(itertools.islice(entries, _FEW + 1))
    return len(first) <= _FEW and not any(entry.is_dir(follow_symlinks=False) for entry in first)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file descriptor of the directory ``path``, whatever has its name later."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def read_result(directory: int, name: str, most: int) -> str:
    """Return the text of the file ``name`` in the open ``directory``.

    Raises:
        ValueError: if it is not a regular file, has more than ``most`` bytes, or is not text.
        OSError: if it cannot be opened; links are not followed.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would wait for its writer
    with os.fdopen(os.open(name, flags, dir_fd=directory), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"'{name}' is not a regular file")
        data = b""
        while len(data) <= most and (piece := file.read(most + 1 - len(data))):
            data += piece
    if len(data) > most:
        raise ValueError(f"'{name}' has more than {most:,} bytes")
    return data.decode("utf-8")
