"""Helpers for child processes: command line, environment, names of signals, and termination with the parent."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path


def python_command(statements: str, *arguments: str | Path) -> list[str | Path]:
    """Return the command of a Python process that runs ``statements``; ``arguments`` are its ``sys.argv[1:]``.

    Its ``sys.path`` lacks the empty entry that ``-c`` adds: the working directory is there only if
    `child_environment` says so.
    """
    return [sys.executable, "-c", f"import sys; sys.path = list(filter(None, sys.path)); {statements}", *arguments]


def child_environment() -> dict[str, str]:
    """Return the environment of this process, with a ``PYTHONPATH`` by which a child imports what this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}


def signal_name(number: int) -> str | None:
    """Return the name of a signal, ``SIGSEGV``; None for a number that no signal has."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def end_with_parent(lifeline: int) -> None:
    """Have the kernel end this process when its parent ends, even in native code or an endless loop.

    ``lifeline`` is the reading end of a pipe whose writing end only the parent has open.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)  # SIGIO from now on: it ends a process without a handler
