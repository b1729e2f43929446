"""The commands of ``fx-importer`` and their arguments."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from fx_importer.cli.environment_arguments import environment, serve
from fx_importer.cli.file_arguments import files, opt, view
from fx_importer.cli.help_layout import Command, Commands
from fx_importer.cli.llm_arguments import llm
from fx_importer.cli.model_arguments import models, quantize
from fx_importer.cli.native.build_command import build
from fx_importer.cli.terminal import echo
from fx_importer.cli.vela_command import vela

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes truncate option names on a narrow terminal
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_versions(wanted: bool) -> None:
    if wanted:
        for name in ("fx-importer", "torch", "torch-mlir"):
            echo(name, version(name))
        raise typer.Exit


@app.callback()
def fx_importer(
    versions: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_versions, help="Print the versions and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the Python traceback of an error.")] = False,
) -> None:
    """Lower PyTorch models to MLIR."""


models.command()(build)
models.command()(quantize)
models.command()(vela)
models.command()(view)
files.command()(opt)
environment.command()(serve)
for group in (models, files, environment):
    app.add_typer(group)
app.add_typer(llm, name="llm")
for group in (models, files, environment, llm):
    for command in group.registered_commands:
        command.cls = Command
