"""Runs what may end its process in a process of its own: there, a signal is an answer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from fx_importer.errors import CrashedError

_CHILD = (
    "import runpy, sys; sys.path = [path for path in sys.path if path]; "  # without the working directory
    "runpy.run_path(sys.argv[1])[sys.argv[2]](*sys.argv[3:])"
)


class Scratch:
    """A new directory for files, which is removed when this object is gone."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="fx-importer-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def run_isolated(what: str, function: Callable[..., None], *arguments: str | Path) -> None:
    """Call ``function`` with strings in a new Python process, and wait for it. What goes in and out lies in files.

    The process runs the file that defines ``function``, and imports what that file imports, no more: a file without
    torch is ready in a fifth of a second. Errors call all of this ``what``.

    Raises:
        CrashedError: if the process ends by a signal, or by an exception.
    """
    code = function.__code__
    run_command(what, [sys.executable, "-c", _CHILD, code.co_filename, code.co_name, *arguments])


def run_command(what: str, command: Sequence[str | Path]) -> None:
    """Run ``command``, which errors call ``what``, and wait for it; what it prints is kept for the error.

    Raises:
        CrashedError: if it ends by a signal, or with an exit code other than 0.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode:
        raise CrashedError(what, signal_name(-ran.returncode), ran.stderr)


def signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None
