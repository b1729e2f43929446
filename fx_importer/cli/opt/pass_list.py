"""The passes that ``fx-importer opt`` runs, as a list."""

from __future__ import annotations

from pathlib import Path

from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.pipelines import PIPELINES, REWRITES
from fx_importer.pipelines.python_passes import description_of
from fx_importer.pipelines.wheel_passes import wheel_passes
from fx_importer.rewrites import REWRITE_FAMILIES


def listed_passes() -> dict[str, dict[str, str]]:
    """Return the passes and pipelines by heading, and the description of each by name."""
    own = {name: description_of(step.run) for name, step in REWRITES.items()}
    own |= {name: description_of(family.function) for name, family in REWRITE_FAMILIES.items()}
    return {
        "pipelines of fx_importer": dict.fromkeys(PIPELINES, ""),
        "passes of fx_importer": dict(sorted(own.items())),
        "passes and pipelines of torch-mlir": dict(wheel_passes()),
    }


def show_passes(path: Path | None) -> None:
    """Print the passes and pipelines. Raises `UsageError` if the JSON document ``path`` cannot be written."""
    with json_output(path) as write:
        listed = listed_passes()
        for heading, rows in listed.items():
            echo(f"{heading}:")
            for name, description in rows.items():
                echo(f"  {name:<40} {description}".rstrip())
        echo("your passes:\n  package.module:function of a module's operation, or of a Pipeline")
        write(document(listed))
