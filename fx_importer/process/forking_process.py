"""A process that has prepared, such as by importing torch, and runs functions in forks, which start at once."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.child_process import child_environment, group_memory, kill_group, python_command, signal_name

_SERVE = "from fx_importer.process.forking_child import serve; serve(sys.argv[1])"
_INTERVAL = 0.05
"""Seconds between two looks at a fork: its memory, and whether it is cancelled."""
_REST = 10
"""Least time between two looks at its memory, in times of a look: it reads the state of all processes."""

_CANCELLED = "cancelled"

Note = Callable[[str], None]


class CancelledError(Exception):
    """The caller of `ForkingProcess.run` does not want the result any more."""


class ForkingProcess:
    """Runs one function at a time, each in a fork; Linux only. It starts anew after it has ended."""

    def __init__(self, prepare: str, environment: Mapping[str, str]):
        """Start the process without waiting for it.

        ``prepare`` is ``package.module:function``, which the process calls first. It starts with ``environment``, which
        ``/proc`` shows to its forks.
        """
        self._prepare, self._environment = prepare, dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._changing = threading.Lock()
        self.start()

    def start(self) -> None:
        """Start the process, unless it runs."""
        with self._changing:
            if self._process is None or self._process.poll() is not None:
                self._buffer = b""
                self._process = subprocess.Popen(
                    python_command(_SERVE, self._prepare),
                    env=child_environment(self._environment),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    bufsize=0,
                )
                self._ready = False

    def run(
        self,
        what: str,
        function: str,
        *arguments: str | Path,
        limits: Limits,
        environment: Mapping[str, str],
        directory: Path,
        note: Note = lambda _text: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call ``package.module:function`` with strings in a fork, and wait for it.

        Args:
            what: the name of the function in errors.
            function: the function; it may write lines to the file descriptor `forking_child.NOTES`.
            *arguments: its arguments.
            limits: the limits; memory counts for the fork and its child processes together.
            environment: its `os.environ`.
            directory: its working directory.
            note: called with each of its lines.
            cancelled: called now and then; the fork is killed if it returns True.

        Raises:
            CrashedError: if the fork ends by a signal or an exception, or exceeds a limit.
            CancelledError: if it was cancelled.
        """
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        request = {
            "function": function,
            "arguments": list(map(str, arguments)),
            "environment": dict(environment),
            "directory": str(directory),
        }
        try:
            while not self._ready:
                self._ready = "ready" in (self._answer(process, _INTERVAL) or {})
                if cancelled():
                    raise CancelledError
            process.stdin.write(json.dumps(request).encode() + b"\n")
            ended, limit = self._follow(process, limits, note, cancelled)
        except (EOFError, OSError):
            self.close()
            raise CrashedError(what, None, "its process ended") from None
        if limit == _CANCELLED:
            raise CancelledError
        if limit or ended["status"]:
            raise CrashedError(what, None if limit else signal_name(-ended["status"]), ended["output"], limit=limit)

    def _follow(
        self, process: subprocess.Popen[bytes], limits: Limits, note: Note, cancelled: Callable[[], bool]
    ) -> tuple[dict[str, Any], str | None]:
        """Return the last answer to a request, and the limit for which the fork was killed, if any."""
        end = None if limits.seconds is None else time.monotonic() + limits.seconds
        fork, limit, next_look = 0, None, 0.0
        while True:
            answer = self._answer(process, _INTERVAL) or {}
            fork = answer.get("process", fork)
            if "status" in answer:
                return answer, limit
            if not fork or limit:
                continue
            now = time.monotonic()
            if not _noted(answer, note) or cancelled():
                limit = _CANCELLED
            elif end is not None and now >= end:
                limit = limits.of_time
            elif limits.memory is not None and now >= next_look:
                if group_memory(fork) > limits.memory:
                    limit = limits.of_memory
                next_look = now + max(_INTERVAL, _REST * (time.monotonic() - now))
            if limit:
                kill_group(fork)
                with suppress(ProcessLookupError):
                    os.kill(fork, signal.SIGKILL)

    def _answer(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
        """Return the next line of the process, or None if none comes in time. Raise `EOFError` if it has ended."""
        assert process.stdout is not None
        if b"\n" not in self._buffer and select.select([process.stdout], [], [], seconds)[0]:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise EOFError
            self._buffer += piece
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        return json.loads(line)

    def close(self) -> None:
        """End the process and its forks."""
        with self._changing:
            process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()  # it ends with its standard input, and kills its forks
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _noted(answer: Mapping[str, Any], note: Note) -> bool:
    """Pass on the note of ``answer``, if any. Return whether the caller still wants the result."""
    try:
        if "note" in answer:
            note(answer["note"])
    except CancelledError:
        return False
    return True
