"""A long-lived Python process that answers requests, with limits of time and memory; its crash is an exception here.

`RestartingWorker` starts one on demand, and anew after a crash.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.child_process import anonymous_memory, child_environment, python_command, signal_name
from fx_importer.process.parent_watchdog import end_with_parent
from fx_importer.process.scratch import SCRATCH, Scratch

Note = Callable[[str], None]
"""Called in the child with what it is about to do. After a crash, the last note is `Child.noted`."""

_SERVE = "from fx_importer.process.worker import serve; serve(sys.argv[1], *map(int, sys.argv[2:]))"
_MEMORY_INTERVAL = 0.02
"""Seconds between two readings of the memory of a child with a memory limit. Only touched pages count."""
_TAIL = 16_384
"""Bytes kept of the output of a crashed child."""


class Child:
    """A Python process that answers requests one at a time. It ends with this object, and with its parent process."""

    def __init__(self, answers: str):
        """Start the process without waiting for it.

        ``answers`` is ``package.module:name`` of a callable that the child calls with a `Note`; the result is called
        with each request. Requests and answers are picklable. The child imports only that module.
        """
        scratch = Scratch()
        requests, to_child = os.pipe()
        from_child, replies = os.pipe()
        self._output, self._noted = (tempfile.TemporaryFile(buffering=0) for _ in range(2))  # noqa: SIM115 - with this object
        passed = (requests, replies, self._noted.fileno())
        stays = threading.current_thread() is threading.main_thread()
        try:
            self._child = subprocess.Popen(
                python_command(_SERVE, answers, *map(str, passed), str(int(stays))),
                env={**child_environment(), SCRATCH: str(scratch.path)},
                pass_fds=passed,
                stdin=subprocess.PIPE,  # the lifeline of `end_with_parent`: nothing is written to it
                stdout=self._output,
                stderr=self._output,
            )
        finally:
            os.close(requests)
            os.close(replies)
        self._to, self._from = Connection(to_child, readable=False), Connection(from_child, writable=False)
        self._asking = threading.Lock()
        self.alive = True
        self.noted = ""
        """The last note of a crashed child."""
        self._ready = False
        self._end = weakref.finalize(self, _end, scratch, self._child, self._to, self._from, self._output, self._noted)

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, what: str, request: Any, limits: Limits | None = None) -> Any:
        """Return the answer to ``request``, within ``limits``; raise what the child raised. Errors call it ``what``.

        Raises:
            CrashedError: if the child ends or exceeds a limit; every later request raises it too.
        """
        with self._asking:
            return self._ask(what, request, limits)

    def _ask(self, what: str, request: Any, limits: Limits | None) -> Any:
        if not self.alive:
            raise CrashedError(what, None, "its process had ended before")
        try:
            if not self._ready:  # the start does not count towards the limits
                self._from.recv_bytes()
                self._ready = True
            self._forget()
            self._to.send_bytes(pickle.dumps(request))
            if limits and (limit := self._wait(limits)):
                self._child.kill()
                raise self._crashed(what, limit)
            succeeded, answer = pickle.loads(self._from.recv_bytes())
        except (EOFError, OSError):
            raise self._crashed(what) from None
        if succeeded:
            return answer
        raise answer

    def output(self) -> str:
        """Return the output of the child, from Python and native code, since the last request."""
        return os.pread(self._output.fileno(), self._size(), 0).decode(errors="replace")

    def _size(self) -> int:
        return os.fstat(self._output.fileno()).st_size

    def _forget(self) -> None:
        self._output.seek(0)  # also moves the child's position: the file description is shared
        self._output.truncate()
        self._noted.truncate(0)

    def _wait(self, limits: Limits) -> str | None:
        """Wait for the answer or the end of the child. Return the exceeded limit, if any."""
        end = None if limits.seconds is None else time.monotonic() + limits.seconds
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            watched = limits.memory is not None
            if self._from.poll(min(left or _MEMORY_INTERVAL, _MEMORY_INTERVAL) if watched else left):
                return None
            if limits.memory is not None and anonymous_memory(self._child.pid) > limits.memory:
                return limits.of_memory
            if end is not None and time.monotonic() >= end:
                return limits.of_time

    def _crashed(self, what: str, limit: str | None = None) -> CrashedError:
        self.alive = False
        code = self._child.wait()
        output = os.pread(self._output.fileno(), _TAIL, max(0, self._size() - _TAIL)).decode(errors="replace")
        self.noted = os.pread(self._noted.fileno(), _TAIL, 0).decode()
        self._end()
        return CrashedError(what, None if limit else signal_name(-code), output, limit=limit)


def _end(_scratch: Scratch, child: subprocess.Popen[bytes], *files: Any) -> None:
    """End the child; ``_scratch``, which nothing else holds, is removed then."""
    for file in files:
        file.close()
    child.kill()
    child.communicate()


def serve(answers: str, requests: int, replies: int, notes: int, parent_thread_stays: int) -> None:
    """Answer requests in the child, through these file descriptors, until the parent closes them."""
    end_with_parent(sys.stdin.fileno(), parent_thread_stays=bool(parent_thread_stays))
    incoming, outgoing = Connection(requests, writable=False), Connection(replies, readable=False)

    def note(text: str) -> None:
        os.ftruncate(notes, 0)
        os.pwrite(notes, text.encode(), 0)

    module, _, name = answers.partition(":")
    answer = getattr(importlib.import_module(module), name)(note)
    outgoing.send_bytes(b"ready")
    while True:
        try:
            request = pickle.loads(incoming.recv_bytes())
        except EOFError:
            return
        try:
            reply = pickle.dumps((True, answer(request)))
        except Exception as error:
            reply = pickle.dumps((False, portable(error)))
        outgoing.send_bytes(reply)


def portable(error: Exception) -> Exception:
    """Return ``error`` if it is picklable, as all of `fx_importer.errors` are; else a RuntimeError with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of any kind: pickling runs the code of the class
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


C = TypeVar("C", bound=Child)


class RestartingWorker(Generic[C]):
    """At most one running `Child`, which ``start`` returns. State of a crashed one is lost."""

    def __init__(self, start: Callable[[], C]):
        self._start = start
        self._child: C | None = None
        self._starting = threading.Lock()

    def running(self) -> C:
        """Return the child; a new one if none was started, or if the last one has ended."""
        with self._starting:
            if self._child is None or not self._child.alive:
                self._child = self._start()
            return self._child
