"""``fx-importer reduce``."""

from __future__ import annotations

from pathlib import Path

import torch

from fx_importer.api.reduce import Job, job_of
from fx_importer.cli.commands.import_model import export_model
from fx_importer.cli.commands.view import report_isolated
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.engines import engine_named
from fx_importer.fx_graph.program_files import read_program
from fx_importer.mlir.output_files import check_directory, file_for_torch
from fx_importer.options import Options
from fx_importer.process.scratch import Scratch
from fx_importer.reduction import Setting
from fx_importer.results.report import check_report
from fx_importer.verification import Tolerance


def reduce_model(
    model: str,
    options: Options,
    output: Path,
    backend: str | None,
    rtol: float | None,
    atol: float | None,
    report: Path | None = None,
    trust: bool = False,
    json: Path | None = None,
) -> None:
    """Reduce the model that ``model`` names, or the program of the report in that directory with the report's options.

    The result is written to ``output``, and each step is printed; ``report`` covers the whole model, and
    ``json`` gets the result as data.

    Raises:
        UsageError: if ``model`` does not name a model, the backend is unknown, ``output`` exists or cannot be created,
            or the model does not fail, or not always.
        ExportError: if torch.export cannot capture the model.
    """
    check_directory(output, new=True)
    if report is not None:
        check_report(report)
    torch.set_num_threads(1)  # before the model runs, since this process forks
    if backend is not None:
        engine_named(backend)
    if Path(model).is_dir():
        job = job_of(Path(model), trust=trust)
    else:
        scratch = Scratch()
        program = scratch.path / "program.pt2"
        with reporting_progress(True):
            exported = export_model(model, options, trust)
        with scratch.writing(), file_for_torch(program) as file:
            torch.export.save(exported, file)
        job = Job(program, Setting(options, backend, Tolerance(rtol, atol)), None)
    with json_output(json) as write:
        # This process forks, so no other thread may run.
        with reporting_progress(True, auto_refresh=False):
            reduction = job.done(output, print)
        echo(reduction.outcome)
        write(document(reduction))
    if report is not None:
        program = read_program(job.program, trust=job.trust)
        report_isolated(model, (program, (), {}), job.setting.options, report)
