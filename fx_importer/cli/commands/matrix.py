"""``fx-importer matrix``."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fx_importer.cli.commands.import_model import lower_model
from fx_importer.cli.commands.view import report_for
from fx_importer.cli.escaped_console import escaped_console
from fx_importer.cli.following import Following
from fx_importer.cli.json_output import json_output
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.progress import counted, reporting_progress
from fx_importer.engines import backend_named, engines_for
from fx_importer.errors import CrashedError, FxImporterError, UsageError, first_line
from fx_importer.fx_graph.program_files import read_objects
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.process.one_shot import run_isolated
from fx_importer.process.scratch import Scratch
from fx_importer.results.report import check_report
from fx_importer.targets import TARGETS
from fx_importer.verification import Inputs
from fx_importer.verification.backend_matrix import Matrix, Row
from fx_importer.verification.verdict import WIDTH

OUTPUT_TYPES = tuple(output_type for output_type in TARGETS if engines_for(output_type))


def show_matrix(
    model: str,
    options: Options,
    output_types: Sequence[OutputType],
    backends: Sequence[str] | None,
    inputs: Path | None,
    json: Path | None,
    report: Path | None = None,
    trust: bool = False,
) -> bool:
    """Lower the model that ``model`` names to each of ``output_types``, run it on backends, and print the table.

    Each output type runs in a separate process, so that a crash fills a cell only. Each of ``backends`` runs the output
    types that it supports; by default, all installed backends run. ``report`` is written for each output type.

    Returns:
        Whether all cells that were tried passed.

    Raises:
        UsageError: if ``model`` does not name a model, or files cannot be read or written.
    """
    with json_output(json) as write:
        matrix = _shown_matrix(model, options, output_types, backends, inputs, report, trust)
        write(matrix.to_json())
    return matrix.passed


def _shown_matrix(
    model: str,
    options: Options,
    output_types: Sequence[OutputType],
    backends: Sequence[str] | None,
    inputs: Path | None,
    report: Path | None,
    trust: bool,
) -> Matrix:
    """Print the table of `show_matrix`, and return it."""
    if report is not None:
        check_report(report)
    if inputs is not None:
        read_inputs(inputs)
    for name in backends or ():
        backend_named(name)
    rows: list[Row] = []
    with reporting_progress(True):
        progress.enter(f"lower and run {model}")
        for output_type in counted(output_types, "output types"):
            chosen = [name for name in _names(output_type) if not backends or name in backends]
            following = Following(None if report is None else report_for(report, output_type))
            asked = replace(options, output_type=output_type)
            rows.append(_row(model, asked, chosen if backends else None, inputs, following, trust))
    matrix = Matrix(tuple(rows))
    console = escaped_console(width=WIDTH)
    if console.is_terminal:
        console.print(matrix.table())
        echo("\n".join(matrix.remarks()))
    else:
        echo(matrix)
    return matrix


def _names(output_type: OutputType) -> tuple[str, ...]:
    """Return the names of the engines that run ``output_type``."""
    return tuple(engine.name for engine in engines_for(output_type))


def _row(
    model: str,
    options: Options,
    backends: Sequence[str] | None,
    inputs: Path | None,
    following: Following,
    trust: bool,
) -> Row:
    scratch = Scratch()
    request, answer = scratch.path / "request", scratch.path / "answer"
    request.write_bytes(pickle.dumps((options, backends, inputs, following, trust)))
    try:
        run_isolated("the lowering", answer_row, model, request, answer)
    except CrashedError as error:
        return Row(options.output_type, None, str(error), error.signal, _names(options.output_type))
    row = pickle.loads(answer.read_bytes())
    if isinstance(row, UsageError):
        raise row
    return row


def answer_row(model: str, request: str, answer: str) -> None:
    """Lower ``model`` and verify it as ``request`` says, and write the row. This runs in the separate process."""
    options, backends, inputs, following, trust = pickle.loads(Path(request).read_bytes())
    row: Row | UsageError
    try:
        with following.run(model, options.output_type.value) as followed:
            followed.lowered = lower_model(model, following.prepared(options), trust)
            input_sets = read_inputs(inputs) if inputs else ()
            followed.verdict = followed.lowered.verify(inputs=input_sets, backends=backends)
        row = Row(options.output_type, followed.verdict)
    except UsageError as error:
        row = UsageError(str(error))
    except FxImporterError as error:
        row = Row(options.output_type, None, str(error), None, _names(options.output_type))
    Path(answer).write_bytes(pickle.dumps(row))


def read_inputs(path: Path) -> list[Inputs]:
    """Return the input sets of a file written by ``torch.save([(args, kwargs), ...], path)``.

    Raises:
        UsageError: if it is not such a file.
    """
    if not path.is_file():
        raise UsageError(f"there is no file '{path}'")
    try:
        sets: Any = read_objects(path)
    except pickle.UnpicklingError as error:  # its message advises to load without checks
        accepted = "tensors and numbers, in tuples, lists and dictionaries"
        raise UsageError(f"'{path}' is not what torch.save writes of {accepted}") from error
    except Exception as error:
        raise UsageError(f"'{path}' is not what torch.save writes: {first_line(error)}") from error
    if isinstance(sets, list) and sets and all(map(_is_call, sets)):
        return [Inputs(tuple(args), kwargs) for args, kwargs in sets]
    raise UsageError(f"'{path}' does not hold a list of input sets: torch.save([(args, kwargs), ...], '{path}')")


def _is_call(pair: Any) -> bool:
    """Whether ``pair`` has arguments and keyword arguments."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    args, kwargs = pair
    return isinstance(args, tuple | list) and isinstance(kwargs, dict) and all(type(name) is str for name in kwargs)
