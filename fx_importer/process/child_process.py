"""Helpers for child processes: command line, environment, names of signals, and memory."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fx_importer.errors import UsageError


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


def check_memory_can_be_watched() -> None:
    """Raise `UsageError` on systems without ``/proc``."""
    if not Path("/proc/self/status").exists():
        raise UsageError("a memory limit needs /proc, which this system does not have: pass a time limit alone")


def anonymous_memory(process: int) -> int:
    """Return the anonymous memory of ``process`` in bytes. Mapped files, for example weights, do not count."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0  # it has ended, or this system has no /proc
    _, found, rest = status.partition("RssAnon:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0
