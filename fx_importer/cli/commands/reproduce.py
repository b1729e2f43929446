"""``fx-importer reproduce``."""

from __future__ import annotations

from pathlib import Path

from fx_importer.api.reproduce import reproduce
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo


def reproduce_report(directory: Path, trust: bool, json: Path | None = None) -> bool:
    """Run the report in ``directory``, print the result, and return whether it failed in the same way.

    ``json`` gets the reported failure and the one of now.
    """
    with json_output(json) as write:
        reproduction = reproduce(directory, trust=trust)
        echo(reproduction)
        write(document({"same": reproduction.same, "reproduction": reproduction}))
    return reproduction.same
