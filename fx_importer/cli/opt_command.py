"""The command ``fx-importer opt`` and its arguments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.following import Following
from fx_importer.cli.following_arguments import takes_following
from fx_importer.errors import UsageError


def complete_pipeline(incomplete: str) -> list[tuple[str, str]]:
    """Return the passes and pipelines that the last word of ``incomplete`` may become, with descriptions."""
    from fx_importer.cli.opt.run_passes import listed_passes

    before, comma, word = incomplete.rpartition(",")
    return [
        (f"{before}{comma}{name}", description)
        for rows in listed_passes().values()
        for name, description in rows.items()
        if name.startswith(word)
    ]


@partial(takes_following, report=False)
def opt(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A module: text or bytecode; - reads standard input.")
    ] = "-",
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline",
            "-p",
            metavar="PASSES",
            help="Passes, separated by commas: of the wheel or of this package by name, pipelines of `fx-importer "
            "pipelines`, package.module:function, or MLIR's builtin.module(...). May be repeated.",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A .mlir file (text), a .mlirbc file (bytecode), or - (text)."
        ),
    ] = "-",
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes and pipelines, and exit.")] = False,
    split_input: Annotated[
        bool, typer.Option("--split-input", help="Run on the parts between lines `// -----`, one after the other.")
    ] = False,
    allow_unregistered: Annotated[
        bool, typer.Option("--allow-unregistered", help="Accept operations of dialects that MLIR does not know.")
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="With --list: also write it as JSON.")] = None,
    following: Following = Following(),  # noqa: B008 - it is frozen
) -> None:
    """Run passes on a module in a file, as mlir-opt does."""
    from fx_importer.cli.opt.run_passes import optimize, show_passes

    if json is not None and not list_passes:
        raise UsageError("--json is the file of --list: pass --list too")
    if list_passes:
        show_passes(json)
    elif not optimize(file, pipeline or [], output, split_input, allow_unregistered, following):
        raise typer.Exit(1)
