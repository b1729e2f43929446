"""The process that `ForkingProcess` starts: it prepares once, and runs each request in a fork, made before it comes.

Requests and answers are lines of JSON on standard input and output. It kills what a fork leaves behind, in other
process groups too, and ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TAIL = 1 << 16
"""Bytes kept of the end of a fork's standard error."""
NOTES = 3
"""The file descriptor on which a fork writes notes, a line for each."""
_MOST_NOTES, _LONGEST_NOTE = 1000, 200


def serve(prepare: str) -> None:
    """Call ``package.module:function``, say that it is done, and run a fork for each request."""
    answers = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _named(prepare)()
    gc.collect()
    gc.freeze()
    _send(answers, {"ready": True})
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    fork = _Fork()
    while line := requests.readline():
        _send(answers, _run(line, fork, answers))
        fork = _Fork()


def _send(answers: int, value: dict[str, Any]) -> None:
    os.write(answers, json.dumps(value).encode() + b"\n")


def _named(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


class _Fork:
    """A fork of this process that waits for its request. Forking takes long in a process with much memory."""

    def __init__(self) -> None:
        (asked, self.asking), (self.errors, failing), (self.notes, noting) = os.pipe(), os.pipe(), os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self.asking)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            with os.fdopen(asked, "rb") as request:
                line = request.readline()
            if not line:  # the parent has ended
                os._exit(1)
            _become(json.loads(line), failing, noting)
        for pipe in (asked, failing, noting):
            os.close(pipe)


def _run(request: bytes, fork: _Fork, answers: int) -> dict[str, Any]:
    """Run a request in a fork, pass its notes on, and return its status and the end of its standard error."""
    _send(answers, {"process": fork.process})
    with os.fdopen(fork.asking, "wb") as asking:
        asking.write(request)
    pipes, tail, lines, count, status = {fork.errors, fork.notes}, b"", b"", 0, None
    end = os.pidfd_open(fork.process)
    while status is None or (pipes and select.select(list(pipes), [], [], 0)[0]):
        readable = select.select([*pipes, 0, end], [], [])[0]
        if 0 in readable:  # the parent has ended: it sends nothing while a request runs
            _kill_children()
            os._exit(1)
        for pipe in pipes.intersection(readable):
            piece = os.read(pipe, _TAIL)
            if not piece:
                pipes.discard(pipe)
            elif pipe == fork.errors:
                tail = (tail + piece)[-_TAIL:]
            else:
                *complete, lines = (lines + piece).split(b"\n")
                lines = lines[:_LONGEST_NOTE]
                for line in complete[: max(0, _MOST_NOTES - count)]:
                    _send(answers, {"note": line[:_LONGEST_NOTE].decode(errors="replace")})
                count += len(complete)
        if status is None and end in readable:
            _, status = os.waitpid(fork.process, 0)
            _kill_children()
    for descriptor in (fork.errors, fork.notes, end):
        os.close(descriptor)
    assert status is not None
    return {"status": os.waitstatus_to_exitcode(status), "output": tail.decode(errors="replace")}


def _become(request: dict[str, Any], errors: int, notes: int) -> NoReturn:
    """Be the process of a request: it has nothing of this one but what was imported."""
    code = 1
    try:
        os.setsid()
        os.dup2(1, 0)
        os.dup2(errors, 2)
        os.dup2(notes, 60)  # not below, where the pipes may be
        os.dup2(60, NOTES)
        os.closerange(NOTES + 1, 1 << 16)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        tempfile.tempdir = None
        from fx_importer.process.scratch import forget_remover

        forget_remover()
        _named(request["function"])(*request["arguments"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _kill_children() -> None:
    """Kill all processes that descend from this one: orphans are its children."""
    while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for child in map(int, children):
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
