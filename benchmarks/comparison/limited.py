"""A child process with limits of memory and time."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

GIGA = 1e9
_POLL_SECONDS = 0.05


class ChildError(Exception):
    """The child failed; the message is a short reason."""


def run_python(arguments: Sequence[str], *, cwd: Path, memory_bytes: float, seconds: float) -> None:
    """Run this Python with ``arguments`` in ``cwd``.

    Raises:
        ChildError: if it holds more than ``memory_bytes``, runs longer than ``seconds``, is ended by a signal or fails.
    """
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen([sys.executable, *arguments], cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
        try:
            _watch(child, memory_bytes, seconds)
        finally:
            child.kill()
            child.wait()
        if child.returncode < 0:
            raise ChildError(f"ended by {signal.Signals(-child.returncode).name}")
        if child.returncode > 0:
            output.seek(0)
            raise ChildError(_last_error(output.read().splitlines()))


def _watch(child: subprocess.Popen[bytes], memory_bytes: float, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while child.poll() is None:
        if _resident(child.pid) > memory_bytes:
            raise ChildError(f"more than {memory_bytes / GIGA:.0f} GB")
        if time.monotonic() > deadline:
            raise ChildError(f"more than {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def _resident(pid: int) -> int:
    """Return the resident bytes of a process; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def _last_error(lines: list[str]) -> str:
    """Return the line that names the exception: the last one of a traceback that is not indented."""
    named = [line for line in lines if line and not line[0].isspace() and "Error" in line.split(":")[0]]
    return (named or lines or ["failed without a message"])[-1]
