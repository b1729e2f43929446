"""``fx-importer explain``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fx_importer.api.explain import explain_program
from fx_importer.cli.commands.import_model import export_model
from fx_importer.cli.json_output import json_output
from fx_importer.cli.option_arguments import with_options
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.options import Options
from fx_importer.output_types import OutputType


def explain_model(
    model: str, options: Options, output_types: Sequence[OutputType], json_file: Path | None, trust: bool = False
) -> bool:
    """Print the operators of the model that ``model`` names which each of ``output_types`` does not support.

    Returns:
        Whether all output types support the model.

    Raises:
        UsageError: if ``model`` does not name a model, or a file cannot be written.
        ExportError: if torch.export cannot capture the model.
    """
    with json_output(json_file) as write:
        with reporting_progress(True):
            explanation = explain_program(export_model(model, options, trust), options, output_types)
        echo(with_options(str(explanation)))
        write(json.dumps(explanation.to_dict(), indent=1) + "\n")
    return bool(explanation)
