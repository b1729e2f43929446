"""``fx-importer explain``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fx_importer.api.explain import explain_program
from fx_importer.cli.commands.import_model import load_call
from fx_importer.cli.json_output import json_output
from fx_importer.cli.option_arguments import with_options
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.errors import ExportError, FxImporterError
from fx_importer.frontend.export import export_program
from fx_importer.fx_graph.graph_break import GraphBreak
from fx_importer.options import Options
from fx_importer.output_types import OutputType


def explain_model(
    model: str, options: Options, output_types: Sequence[OutputType], json_file: Path | None, trust: bool = False
) -> bool:
    """Print the operators of the model that ``model`` names which each of ``output_types`` does not support.

    For a model that torch.export rejects, print its graph breaks: where Python runs between the functions that
    `import_function` makes of it.

    Returns:
        Whether all output types support the model.

    Raises:
        UsageError: if ``model`` does not name a model, or a file cannot be written.
        ExportError: if torch.export cannot capture the model.
    """
    with json_output(json_file) as write:
        with reporting_progress(True):
            f, args, kwargs = load_call(model, trust)
            try:
                program = export_program(f, args, kwargs, options.export)
            except ExportError:
                breaks = _graph_breaks(f, args, kwargs)
                write(json.dumps({"graph_breaks": [asdict(graph_break) for graph_break in breaks]}, indent=1) + "\n")
                raise
            explanation = explain_program(program, options, output_types)
        echo(with_options(str(explanation)))
        write(json.dumps(explanation.to_dict(), indent=1) + "\n")
    return bool(explanation)


def _graph_breaks(f: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[GraphBreak, ...]:
    """Print the functions and graph breaks of a model that torch.export rejects; return the breaks."""
    from fx_importer.dynamo import import_function

    progress.enter("capture the graphs")
    try:
        imported = import_function(f, *args, kwargs=kwargs, output_type=OutputType.TORCH)
    except FxImporterError:
        return ()  # the error of torch.export is printed
    count = len(imported.captured)
    echo(f"fx_importer.dynamo.import_function imports it as {count} functions of one module, with Python between them:")
    echo(imported)
    return imported.breaks
