"""The command ``fx-importer view`` and its arguments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fx_importer.cli.following import Following
from fx_importer.cli.following_arguments import takes_following
from fx_importer.cli.model_arguments import Model, Trust
from fx_importer.cli.option_arguments import takes_options
from fx_importer.options import Options
from fx_importer.output_types import OutputType


@partial(takes_following, report=False)
@takes_options
def view(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A .html file (the page) or a .json file (its data). With --open, the default is a temporary file.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    options: Options = Options(output_type=OutputType.LINALG_ON_TENSORS),  # noqa: B008 - it is frozen
    following: Following = Following(),  # noqa: B008
    trust: Trust = False,
) -> None:
    """Write a page that links the model's source with its IR.

    The page, the explorer, has the IR after each stage. The exit code is 1 if the model cannot be lowered; the page
    then shows why.
    """
    from fx_importer.cli.commands.view import view_model

    if not view_model(model, options, output, following, trust, show):
        raise typer.Exit(1)
