"""Helpers for child processes: command line, environment, names of signals, and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from fx_importer.errors import UsageError


def python_command(statements: str, *arguments: str | Path) -> list[str | Path]:
    """Return the command of a Python process that runs ``statements``; ``arguments`` are its ``sys.argv[1:]``.

    Its ``sys.path`` lacks the empty entry that ``-c`` adds: the working directory is there only if
    `child_environment` says so.
    """
    return [sys.executable, "-c", f"import sys; sys.path = list(filter(None, sys.path)); {statements}", *arguments]


def child_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``variables``, by default `os.environ`, with a ``PYTHONPATH`` for the modules of this process."""
    environment = os.environ if variables is None else variables
    return {**environment, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}


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


def kill_group(leader: int) -> None:
    """Kill the process group of ``leader``, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def group_memory(leader: int) -> int:
    """Return the anonymous memory of ``leader`` and its process group in bytes."""
    members = {leader}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[2]) == leader:
            members.add(int(path.parent.name))
    return sum(map(anonymous_memory, members))


def anonymous_memory(process: int) -> int:
    """Return the anonymous memory of ``process`` in bytes. Mapped files, for example weights, do not count."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0  # it has ended, or this system has no /proc
    _, found, rest = status.partition("RssAnon:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0
