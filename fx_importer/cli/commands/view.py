"""``fx-importer view``."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from dataclasses import replace
from pathlib import Path

from fx_importer.api.report import contents_of_models
from fx_importer.cli.commands.import_model import load_call
from fx_importer.cli.following import Following
from fx_importer.cli.option_arguments import with_options
from fx_importer.cli.terminal import echo
from fx_importer.compiler.compilation import Call
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.errors import UsageError
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.results.report import check_report, write_report


def report_for(path: Path, output_type: OutputType) -> Path:
    """Return the path of the report of one of several output types: ``model.tosa.html``."""
    return path.with_suffix(f".{output_type.value}{path.suffix}")


def report_isolated(title: str, call: Call, options: Options, path: Path) -> None:
    """Lower a model, with the passes in another process, which they may end, and write the report to ``path``."""
    isolated = replace(options, running=replace(options.running, isolate=True))
    write_report(contents_of_models(title, {options.importing.func_name: call}, isolated), path)
    echo(f"{path}: {path.stat().st_size:,} bytes", file=sys.stderr)


def view_model(
    model: str,
    options: Options,
    output: Path | None,
    following: Following,
    trust: bool = False,
    show: bool = False,
) -> bool:
    """Write the report of the model that ``model`` names to ``output``. Return whether the model can be lowered.

    With ``show``, the browser opens it; without ``output``, it is a temporary file.

    Raises:
        UsageError: if ``model`` does not name a model, or the file cannot be written.
    """
    if output is None:
        if not show:
            raise UsageError("name the page with -o model.html, or pass --open, which opens a temporary file")
        output = Path(tempfile.mkdtemp(prefix="fx-importer-")) / "explorer.html"
    check_report(output)
    options = following.prepared(options)
    with following.run(model, options.output_type.value), reporting_progress(True):
        contents = contents_of_models(model, {options.importing.func_name: load_call(model, trust)}, options)
    write_report(contents, output)
    if contents["error"]:
        echo(with_options(contents["error"]), file=sys.stderr)
    views, size = len(contents["views"]), output.stat().st_size
    echo(f"{output}: {contents['output_type']}, {contents['outcome']}, {views} views, {size:,} bytes")
    if show and not webbrowser.open(output.absolute().as_uri()):
        echo(f"no browser could be started: open {output.absolute()} in one", file=sys.stderr)
    return not contents["error"]
