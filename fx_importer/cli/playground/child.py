"""Code of the process of a compilation: it runs the edited program, and lowers it."""

from __future__ import annotations

import json
from pathlib import Path

MODULE = "playground_model"
"""The name of the module that is edited; its function ``build`` returns the model and its inputs."""


def compile_page(output_type: str, page: str, result: str) -> None:
    """Lower ``build`` of the module in the working directory, and write the explorer to ``page``.

    ``result`` gets the outcome as JSON: the message of an error, and whether there is a page.
    """
    from fx_importer.api.report import contents_of_models
    from fx_importer.cli.commands.import_model import load_call
    from fx_importer.cli.option_arguments import with_options
    from fx_importer.errors import FxImporterError
    from fx_importer.options import Options
    from fx_importer.output_types import OutputType
    from fx_importer.results.report import write_report

    options = Options(output_type=OutputType.get(output_type))
    try:
        call = load_call(f"{MODULE}:build", trust=False)
        contents = contents_of_models("playground", {"main": call}, options)
    except FxImporterError as error:
        outcome = {"message": with_options(str(error)), "page": False}
    else:
        write_report(contents, page)
        outcome = {"message": with_options(contents["error"] or ""), "page": True}
    Path(result).write_text(json.dumps(outcome), encoding="utf-8")
