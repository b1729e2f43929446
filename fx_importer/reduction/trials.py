"""Tries candidates, each in a fork of this process: a crash or an endless loop there is an answer."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, NoReturn

from fx_importer.diagnostics import progress
from fx_importer.process.child_process import end_with_parent, signal_name
from fx_importer.process.scratch import Scratch
from fx_importer.reduction.symptom import Kind, Symptom, crash, symptom_of

Entering = Callable[[str], None]
"""Told the name of each stage as it begins."""
Attempt = Callable[[Entering], None]
"""Lowers a candidate, and runs it where that is what fails; raises what goes wrong."""


@dataclass
class Trials:
    """Runs attempts one by one, and counts them.

    A fork has the candidate and all that was imported, and starts in hundredths of a second. It is safe in a process
    that computes in one thread, as that of `fx_importer.api.reduce` does: MLIR and compilers run in the forks only.
    """

    patience: float
    """Seconds that a stage may take."""
    count: int = 0
    slowest: float = 0.0
    """Seconds that the slowest of all stages took that ended."""
    _scratch: Scratch = field(default_factory=Scratch)

    def run(self, attempt: Attempt, seconds: float | None = None) -> Symptom | None:
        """Return how ``attempt`` fails; None if it does not. A stage may take ``seconds``, or as many as all may."""
        self.count += 1
        progress.enter(f"trial {self.count:,}")
        receiving, sending = Pipe(duplex=False)
        with tempfile.TemporaryFile(dir=self._scratch.path) as said:
            sys.stdout.flush()
            sys.stderr.flush()
            lifeline, held = os.pipe()
            child = _fork()
            if child == 0:
                os.close(held)
                _serve(attempt, sending, said, self._scratch.path, lifeline)
            sending.close()
            os.close(lifeline)
            try:
                with receiving:
                    return self._answer(child, receiving, said, self.patience if seconds is None else seconds)
            finally:
                os.close(held)

    def _answer(self, child: int, receiving: Connection, said: IO[bytes], patience: float) -> Symptom | None:
        stage = "start"
        begun = time.monotonic()
        try:
            while receiving.poll(max(0.0, begun + patience - time.monotonic())):
                message = receiving.recv()
                self.slowest = max(self.slowest, time.monotonic() - begun)
                if not isinstance(message, str):
                    return message
                stage, begun = message, time.monotonic()
            return Symptom(Kind.TIMED_OUT, stage, said=f"{stage} had not ended after {patience:.0f} seconds")
        except (EOFError, OSError):
            _, status = os.waitpid(child, 0)
            child = 0
            code = os.waitstatus_to_exitcode(status)
            said.seek(0)
            how = signal_name(-code) or f"exit code {code}"
            return crash(stage, how, said.read().decode(errors="replace"))
        finally:
            if child:
                _end(child)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)  # see `Trials`
        return os.fork()


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what it started itself
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)  # it may not have come to lead a group
    os.waitpid(child, 0)


def _serve(attempt: Attempt, sending: Connection, said: IO[bytes], scratch: Path, lifeline: int) -> NoReturn:
    """Be the fork: nothing of what this process would do at its end is done."""
    try:
        progress.stop_reporting()
        os.setpgid(0, 0)
        end_with_parent(lifeline)
        faulthandler.disable()  # a crash is what is looked for, and no news
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
        tempfile.tempdir = str(scratch)  # nobody else removes what the fork leaves behind
        stage = "start"

        def entering(name: str) -> None:
            nonlocal stage
            stage = name
            sending.send(name)

        try:
            attempt(entering)
            found = None
        except Exception as error:
            found = symptom_of(error, stage)
        sending.send(found)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
