"""Runs candidates in forks of this process, which survives their crashes and endless loops."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, NoReturn

from fx_importer.diagnostics import progress
from fx_importer.frontend.torch_patches import warnings_filtered
from fx_importer.process.child_process import signal_name
from fx_importer.process.parent_watchdog import end_with_parent
from fx_importer.process.scratch import Scratch
from fx_importer.reduction.symptom import Kind, Symptom, crash, symptom_of

Entering = Callable[[str], None]
"""Called with the name of each stage when it begins."""
Attempt = Callable[[Entering], None]
"""Lowers a candidate, and runs it if the failure occurs at run time; raises the error."""


@dataclass
class Trials:
    """Runs attempts one by one, and counts them.

    A fork shares the candidate and all imported modules, and starts in hundredths of a second. Forking is safe because
    this process computes in one thread, as the process of `fx_importer.api.reduce` does: MLIR and compilers run in
    forks only.
    """

    patience: float
    """Time limit of a stage in seconds."""
    count: int = 0
    slowest: float = 0.0
    """Time of the slowest stage that ended, in seconds."""
    _scratch: Scratch = field(default_factory=Scratch)

    def run(self, attempt: Attempt, seconds: float | None = None) -> Symptom | None:
        """Return the symptom of ``attempt``; None if it does not fail.

        ``seconds`` overrides the time limit of a stage.
        """
        self.count += 1
        progress.enter(f"trial {self.count:,}")
        receiving, sending = Pipe(duplex=False)
        with tempfile.TemporaryFile(dir=self._scratch.path) as output:
            sys.stdout.flush()
            sys.stderr.flush()
            lifeline, writing = os.pipe()
            child = _fork()
            if child == 0:
                os.close(writing)
                _serve(attempt, sending, output, self._scratch.path, lifeline)
            sending.close()
            os.close(lifeline)
            try:
                with receiving:
                    return self._answer(child, receiving, output, self.patience if seconds is None else seconds)
            finally:
                os.close(writing)

    def _answer(self, child: int, receiving: Connection, output: IO[bytes], patience: float) -> Symptom | None:
        stage = "start"
        begun = time.monotonic()
        try:
            while receiving.poll(max(0.0, begun + patience - time.monotonic())):
                message = receiving.recv()
                self.slowest = max(self.slowest, time.monotonic() - begun)
                if not isinstance(message, str):
                    return message
                stage, begun = message, time.monotonic()
            return Symptom(Kind.TIMED_OUT, stage, message=f"{stage} had not ended after {patience:.0f} seconds")
        except (EOFError, OSError):
            _, status = os.waitpid(child, 0)
            child = 0
            code = os.waitstatus_to_exitcode(status)
            output.seek(0)
            how = signal_name(-code) or f"exit code {code}"
            return crash(stage, how, output.read().decode(errors="replace"))
        finally:
            if child:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)  # including its child processes
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)  # it may not lead a process group yet
                os.waitpid(child, 0)


def _fork() -> int:
    with warnings_filtered("ignore", ".*fork", DeprecationWarning):  # see `Trials`
        return os.fork()


def _serve(attempt: Attempt, sending: Connection, output: IO[bytes], scratch: Path, lifeline: int) -> NoReturn:
    """Run the attempt in the fork, which exits without the exit handlers of this process."""
    try:
        progress.stop_reporting()
        os.setpgid(0, 0)
        end_with_parent(lifeline)
        faulthandler.disable()  # crashes are expected here
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        tempfile.tempdir = str(scratch)  # so that this process removes the fork's temporary files
        stage = "start"

        def entering(name: str) -> None:
            nonlocal stage
            stage = name
            sending.send(name)

        try:
            attempt(entering)
            symptom = None
        except Exception as error:
            symptom = symptom_of(error, stage)
        sending.send(symptom)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
