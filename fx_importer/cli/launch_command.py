"""The command ``fx-importer launch`` and its arguments."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def launch(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python script that calls join_processes.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many processes run it.")] = 2,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.0, help="When all are ended. Default: never.")
    ] = None,
) -> None:
    """Run a script in several processes of this machine, whose devices are one mesh, as torchrun does."""
    from fx_importer.errors import UsageError
    from fx_importer.process.launcher import launch

    command = [sys.executable, script, *(arguments or ())]
    if (failure := launch(command, processes, time_limit=time_limit)) is not None:
        raise UsageError(failure)
