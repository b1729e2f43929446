"""``fx-importer serve``."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from fx_importer.cli.playground.compilation import passed_on
from fx_importer.cli.playground.server import Playground
from fx_importer.cli.terminal import echo
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.process.child_process import check_memory_can_be_watched, child_environment, python_command


def serve_playground(port: int, output_type: OutputType, seconds: float, memory: int) -> None:
    """Print the address of a playground, and serve it until the process is interrupted.

    This process starts anew without the environment variables that programs must not see: ``/proc`` shows those that a
    process was started with.

    Raises:
        UsageError: if the port is not free, or this system has no ``/proc`` to watch the memory by.
    """
    check_memory_can_be_watched()
    environment = child_environment({**passed_on(), **_own()})
    if not _first_variables() <= set(environment):
        command = python_command("from fx_importer.cli import main; main()", *sys.argv[1:])
        os.execve(sys.executable, list(map(str, command)), environment)
    with Playground(port, output_type, Limits(seconds, memory)) as playground, contextlib.suppress(KeyboardInterrupt):
        echo(f"{playground.address}\nCtrl-C ends it. Anyone with the address can run programs as you.", flush=True)
        playground.serve_forever()


def _first_variables() -> set[str]:
    """Return the names of the variables that this process was started with, without those it set since."""
    variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    return {os.fsdecode(variable.partition(b"=")[0]) for variable in variables if variable}


def _own() -> dict[str, str]:
    """Return the variables that this process needs, and programs do not get."""
    return {name: os.environ[name] for name in ("HOME", "TMPDIR", "TERM", "NO_COLOR") if name in os.environ}
