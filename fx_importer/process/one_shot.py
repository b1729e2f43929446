"""A function or a command in a process of its own, once; a crash there is an exception here."""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process import parent_watchdog
from fx_importer.process.child_process import (
    child_environment,
    group_memory,
    kill_group,
    kill_marked,
    new_mark,
    python_command,
    signal_name,
)

_CALL = (
    "import runpy; runpy.run_path(sys.argv[1])['end_with_parent'](sys.stdin.fileno()); "
    "runpy.run_path(sys.argv[2])[sys.argv[3]](*sys.argv[4:])"
)
_INTERVAL = 0.05
"""Seconds between two looks at a process: whether it has ended, and its memory."""
_TAIL = 1 << 16
"""Bytes kept of the end of its standard error."""


def run_isolated(
    what: str,
    function: Callable[..., None],
    *arguments: str | Path,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> None:
    """Call ``function`` with strings in a new Python process, and wait for it. Input and output are in files.

    The process runs the file that defines ``function`` and imports only what that file imports: without torch it
    starts in 0.2 s. It ends with this one, and those that it has started with it. Errors call the function ``what``.

    Args:
        what: the name of the function in errors.
        function: a function of a module.
        *arguments: its arguments.
        limits: the limits; memory counts for the process and its child processes together.
        environment: its environment variables, except for ``PYTHONPATH``; by default `os.environ`.
        directory: its working directory; by default the current one.

    Raises:
        CrashedError: if the process ends by a signal or an exception, or exceeds a limit.
    """
    code = function.__code__
    command = python_command(_CALL, parent_watchdog.__file__, code.co_filename, code.co_name, *arguments)
    _run(what, command, limits, environment, directory)


def run_command(what: str, command: Sequence[str | Path], limits: Limits | None = None) -> None:
    """Run ``command``, which errors call ``what``, and wait for it. Its standard error is kept for the exception.

    It ends with this process.

    Raises:
        CrashedError: if it ends by a signal, or with an exit code other than 0, or exceeds a limit.
    """
    _run(what, parent_watchdog.ending_with_parent(command), limits)


def output_of(command: Sequence[str | Path], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run ``command`` without input, and return its exit code and output. It ends with this process.

    Raises:
        subprocess.TimeoutExpired: if it takes longer than ``seconds``.
        OSError: if the command does not exist.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(command[0]))
    reading, lifeline_end = os.pipe()
    try:
        return subprocess.run(
            parent_watchdog.ending_with_parent(command),
            stdin=reading,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    finally:
        os.close(reading)
        os.close(lifeline_end)


def _run(
    what: str,
    command: Sequence[str | os.PathLike[str]],
    limits: Limits | None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> None:
    reading, lifeline_end = os.pipe()
    mark = new_mark()
    try:
        try:
            child = subprocess.Popen(
                command,
                env={**child_environment(environment), **mark},
                cwd=directory,
                start_new_session=True,
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        finally:
            os.close(reading)
        try:
            output, limit = _wait(child, limits or Limits())
        finally:
            kill_group(child.pid)
            child.kill()
            child.wait()
            kill_marked(mark)
            assert child.stderr is not None
            child.stderr.close()
    finally:
        os.close(lifeline_end)
    if limit or child.returncode:
        raise CrashedError(what, None if limit else signal_name(-child.returncode), output, limit=limit)


def _wait(child: subprocess.Popen[bytes], limits: Limits) -> tuple[str, str | None]:
    """Return the end of the standard error of ``child`` when it has ended, and the exceeded limit, if any.

    Processes that it has started may hold its standard error open, and are not waited for.
    """
    assert child.stderr is not None
    end = None if limits.seconds is None else time.monotonic() + limits.seconds
    tail = _Tail(child.stderr.fileno())
    while True:
        left = _INTERVAL if end is None else max(0.0, min(_INTERVAL, end - time.monotonic()))
        ended = tail.read(left) or child.poll() is not None
        if ended:
            try:
                child.wait(left)
            except subprocess.TimeoutExpired:  # it closed its standard error, and goes on
                ended = False
        if ended:
            tail.rest()
            return tail.text, None
        if limits.memory is not None and group_memory(child.pid) > limits.memory:
            return "", limits.of_memory
        if end is not None and time.monotonic() >= end:
            return "", limits.of_time


class _Tail:
    """The last bytes that come through a pipe."""

    def __init__(self, pipe: int):
        os.set_blocking(pipe, False)
        self._pipe, self._data, self._closed = pipe, b"", False

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")

    def read(self, seconds: float) -> bool:
        """Wait for bytes, and keep the last ones. Return whether the other end is closed."""
        if not self._closed and select.select([self._pipe], [], [], seconds)[0]:
            piece = os.read(self._pipe, _TAIL)
            self._closed = not piece
            self._data = (self._data + piece)[-_TAIL:]
        return self._closed

    def rest(self) -> None:
        """Keep the last bytes in the pipe, without waiting: at most what a pipe holds."""
        for _ in range(_TAIL >> 10):
            if self._closed or not select.select([self._pipe], [], [], 0)[0]:
                return
            self.read(0)
