"""Ctrl-C: the command and its stage are named, and the process ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fx_importer.cli.terminal import print_labelled
from fx_importer.diagnostics.progress import current_stage

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

_CLEARED_LINE = "\r\x1b[2K\x1b[?25h"
"""Erases the progress line, and shows the cursor, which it hides."""


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """End the process on Ctrl-C in the body, and name ``command`` and its stage on standard error.

    A `KeyboardInterrupt` in a Python function that torch calls from C++ would abort the process. Temporary files are
    removed, and children end, as after any death of the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    start, owner = time.perf_counter(), os.getpid()

    def end(_signal: int, _frame: object) -> None:
        try:
            if os.getpid() == owner:  # and no fork
                _report(command, time.perf_counter() - start)
        finally:  # a stream may be closed, or in the middle of a write
            os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _report(command: str, seconds: float) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(_CLEARED_LINE)
    stage = f" in {current_stage()}" if current_stage() else ""
    print_labelled("interrupted", "yellow", f"{command}{stage}, after {seconds:.1f} s")
    sys.stderr.flush()
    sys.stdout.flush()
