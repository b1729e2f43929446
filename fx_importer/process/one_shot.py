"""A function or a command in a process of its own, once; a crash there is an exception here."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from fx_importer.errors import CrashedError
from fx_importer.process.child_process import child_environment, python_command, signal_name


def run_isolated(what: str, function: Callable[..., None], *arguments: str | Path) -> None:
    """Call ``function`` with strings in a new Python process, and wait for it. Input and output are in files.

    The process runs the file that defines ``function`` and imports only what that file imports: without torch it
    starts in 0.2 s. Errors call the function ``what``.

    Raises:
        CrashedError: if the process ends by a signal or an exception.
    """
    code = function.__code__
    call = "import runpy; runpy.run_path(sys.argv[1])[sys.argv[2]](*sys.argv[3:])"
    run_command(what, python_command(call, code.co_filename, code.co_name, *arguments))


def run_command(what: str, command: Sequence[str | Path]) -> None:
    """Run ``command``, which errors call ``what``, and wait for it. Its standard error is kept for the exception.

    Raises:
        CrashedError: if it ends by a signal, or with an exit code other than 0.
    """
    ran = subprocess.run(
        command, env=child_environment(), capture_output=True, text=True, errors="replace", check=False
    )
    if ran.returncode:
        raise CrashedError(what, signal_name(-ran.returncode), ran.stderr)
