"""``fx-importer doctor``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fx_importer.errors import UsageError
from fx_importer.installation import doctor


def show_checkup(json: Path | None) -> bool:
    """Check the installation, print the findings, and return whether models can be lowered.

    Raises:
        UsageError: if the file ``json`` cannot be written.
    """
    checkup = doctor()
    console = Console()
    if console.is_terminal:
        console.print(checkup.table())
        print("\n".join(checkup.advice()))
    else:
        print(checkup)
    if json is not None:
        try:
            json.write_text(checkup.to_json())  # `saving` imports packages that may be broken
        except OSError as error:
            raise UsageError(f"cannot save to '{json}': {error.strerror}") from None
    return checkup.works
