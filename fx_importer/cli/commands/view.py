"""``fx-importer view``."""

from __future__ import annotations

import sys
from pathlib import Path

from fx_importer.api.report import check_report, contents_of_models, write_report
from fx_importer.cli.commands.import_model import load_call
from fx_importer.cli.following import Following
from fx_importer.cli.option_arguments import with_options
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.options import Options


def view_model(model: str, options: Options, output: Path, following: Following, trust: bool = False) -> bool:
    """Write the report of the model that ``model`` names to ``output``. Return whether the model can be lowered.

    Raises:
        UsageError: if ``model`` does not name a model, or the file cannot be written.
    """
    check_report(output)
    options = following.prepared(options)
    with following.run(model, options.output_type.value), reporting_progress(True):
        contents = contents_of_models(model, {options.importing.func_name: load_call(model, trust)}, options)
    write_report(contents, output)
    if contents["error"]:
        print(with_options(contents["error"]), file=sys.stderr)
    views, size = len(contents["views"]), output.stat().st_size
    print(f"{output}: {contents['output_type']}, {contents['outcome']}, {views} views, {size:,} bytes")
    return not contents["error"]
