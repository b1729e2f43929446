"""Helpers for child processes: command line, environment, names of signals, and memory."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from fx_importer.errors import UsageError

_MARK = "FX_IMPORTER_PROCESS"
"""The environment variable by which processes that outlive the one that started them are recognized."""


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


def new_mark() -> dict[str, str]:
    """Return an environment variable that a process and those that it starts inherit: `kill_marked`."""
    return {_MARK: secrets.token_hex(16)}


def kill_marked(mark: Mapping[str, str]) -> None:
    """Kill the processes with ``mark`` in their first environment, on systems with ``/proc``: also in other groups."""
    (entry,) = (f"{name}={value}".encode() for name, value in mark.items())
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if entry in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


def group_memory(leader: int) -> int:
    """Return the anonymous memory of ``leader``, its process group and its descendants in bytes."""
    parents: dict[int, int] = {}
    members = {leader}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        if int(fields[2]) == leader:
            members.add(process)
    while new := {process for process, parent in parents.items() if parent in members} - members:
        members |= new
    return sum(map(anonymous_memory, members))


def anonymous_memory(process: int) -> int:
    """Return the anonymous memory of ``process`` in bytes. Mapped files, for example weights, do not count."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0  # it has ended, or this system has no /proc
    _, key, rest = status.partition("RssAnon:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if key else 0
