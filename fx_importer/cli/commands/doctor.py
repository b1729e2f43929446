"""``fx-importer doctor``."""

from __future__ import annotations

from pathlib import Path

from fx_importer.cli.escaped_console import escaped_console
from fx_importer.cli.json_output import json_output
from fx_importer.cli.terminal import echo
from fx_importer.installation import doctor


def show_checkup(json: Path | None) -> bool:
    """Check the installation, print the findings, and return whether models can be lowered.

    Raises:
        UsageError: if the file ``json`` cannot be written.
    """
    with json_output(json) as write:
        checkup = doctor()
        console = escaped_console()
        if console.is_terminal:
            console.print(checkup.table())
            echo("\n".join(checkup.advice()))
            console.print(checkup.verdict, style="green" if checkup.works else "bold red", highlight=False)
        else:
            echo(checkup)
        write(checkup.to_json())
    return checkup.works
