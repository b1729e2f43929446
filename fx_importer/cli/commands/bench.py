"""``fx-importer bench``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from fx_importer.benchmarking import chosen_engines, measure
from fx_importer.benchmarking.measure import recommendation, remarks, table
from fx_importer.calls.backend import EVALUATION
from fx_importer.cli.commands.import_model import load_call
from fx_importer.cli.commands.view import report_for, report_isolated
from fx_importer.cli.escaped_console import escaped_console
from fx_importer.cli.json_output import json_output
from fx_importer.cli.model_loading import load_model
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.results.report import check_report

_WIDTH = 160


def bench_model(
    model: str,
    options: Options,
    engines: Sequence[str],
    output_types: Sequence[OutputType],
    threads: int,
    turns: int,
    path: Path | None,
    report: Path | None = None,
    trust: bool = False,
    device: str = "cpu",
) -> None:
    """Measure the model that ``model`` names on ``engines``, and print a table and a recommendation.

    ``report`` is written for each output type, which is lowered once more for it.

    Raises:
        UsageError: if ``model`` does not name a model that runs in eager PyTorch, no engine fits, ``device`` is not
            there, there are fewer processors than ``threads``, or ``path`` cannot be written.
    """
    with json_output(path) as write:
        if report is not None:
            check_report(report)
        chosen = chosen_engines(engines, output_types, options, device)
        with reporting_progress(True):
            progress.enter(f"measure {model}")
            load = partial(load_model, model, trust=trust)
            measurements = measure(load, chosen, threads, turns, EVALUATION, device=device)
        console = escaped_console() if escaped_console().is_terminal else escaped_console(width=_WIDTH)
        console.print(table(measurements))
        echo(*remarks(measurements), recommendation(measurements), sep="\n")
        rows = [asdict(measurement) for measurement in measurements]
        figures = {"model": model, "device": device, "threads": threads, "engines": rows}
        write(json.dumps(figures, indent=1))
        if report is not None:
            call = load_call(model, trust)
            for kind in dict.fromkeys(engine.output_type for engine in chosen if engine.output_type):
                report_isolated(model, call, replace(options, output_type=kind), report_for(report, kind))
