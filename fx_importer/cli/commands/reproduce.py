"""``fx-importer reproduce``."""

from __future__ import annotations

from pathlib import Path

from fx_importer.api.reproduce import reproduce
from fx_importer.cli.terminal import echo


def reproduce_report(directory: Path, trust: bool) -> bool:
    """Run the report in ``directory``, print the result, and return whether it failed in the same way."""
    reproduction = reproduce(directory, trust=trust)
    echo(reproduction)
    return reproduction.same
