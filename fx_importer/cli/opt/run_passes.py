"""The run of ``fx-importer opt``: read a module, run passes, write it; and the list of the passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fx_importer.cli.following import Following
from fx_importer.cli.json_output import STDOUT, document, json_output
from fx_importer.cli.model_loading import named_attribute
from fx_importer.cli.terminal import echo, print_module
from fx_importer.diagnostics.observers import observing
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import StageFailed, UsageError
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.module_io import MODULES, save_module
from fx_importer.mlir.output_files import check_writable
from fx_importer.pipelines import PIPELINES, REWRITES, Pipeline, Stage, run_stage
from fx_importer.pipelines.pipeline import as_stage
from fx_importer.pipelines.pipeline_parser import split_at_commas
from fx_importer.pipelines.python_passes import description_of
from fx_importer.pipelines.runner import single_passes
from fx_importer.pipelines.wheel_passes import wheel_passes
from fx_importer.rewrites import REWRITE_FAMILIES

SEPARATOR = re.compile(r"^// -----.*\n", re.MULTILINE)
"""Between the parts of a file, as in MLIR's own tests."""

_PYTHON_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ON_FUNCTIONS = "restricted to 'func.func'"
_POSITION = re.compile(r'"([^"]*)":(\d+):(\d+)')


def optimize(
    file: str, texts: Sequence[str], output: str, split: bool, allow_unregistered: bool, following: Following
) -> bool:
    """Run the passes of ``texts`` on the module in ``file``, and write it to ``output``; ``-`` is a standard stream.

    MLIR's diagnostics are printed to standard error as ``FILE:LINE:COLUMN: error: ...``. ``split`` runs the passes on
    each part of the file; ``allow_unregistered`` accepts operations of unknown dialects.

    Returns:
        Whether the module could be parsed, and all passes succeeded; nothing is written otherwise.

    Raises:
        UsageError: if a pass is unknown, or a file cannot be read or written; before any pass runs.
    """
    if output != STDOUT:
        check_writable(output, MODULES)
        if split:
            raise UsageError("--split-input prints the parts to standard output: leave --output away")
    stages = [stage for text in texts for stage in stages_of(text)]
    data = _read(file)
    context = new_context()
    load_dialects(context)
    context.allow_unregistered_dialects = allow_unregistered
    report = partial(_report, "<stdin>" if file == STDOUT else file)
    modules: list[ir.Module] = []
    with _followed(following, stages), context.attach_diagnostic_handler(partial(_remark, report)):
        for part in _parts(data) if split else [data]:
            try:
                modules.append(ir.Module.parse(part, context))
                _run(stages, modules[-1])
            except ir.MLIRError as error:
                for diagnostic in error.error_diagnostics:
                    report(diagnostic)
                return False
    if output != STDOUT:
        save_module(modules[0], output)
        return True
    for number, module in enumerate(modules):
        if number:
            echo("// -----")
        print_module(module)
    return True


def stages_of(text: str) -> Iterator[Stage]:
    """Yield the stages of the passes in ``text``. Raises `UsageError` for an unknown one."""
    if text.strip().startswith("builtin.module("):
        yield as_stage(text)
        return
    for name in map(str.strip, split_at_commas(text)):
        if name in PIPELINES:
            yield from PIPELINES[name].stages
        elif _PYTHON_NAME.fullmatch(name):
            yield from _stages_of_object(named_attribute(*name.split(":")))
        else:
            yield _stage_of_pass(name)


def _stages_of_object(step: Any) -> Iterable[Stage]:
    return step.stages if isinstance(step, Pipeline) else [as_stage(step)]


def _stage_of_pass(name: str) -> Stage:
    """Return the stage of a pass, which runs on the functions if it cannot run on the module."""
    try:
        return as_stage(name)
    except UsageError as error:
        if _ON_FUNCTIONS in str(error):
            return as_stage(f"func.func({name})")
        raise UsageError(f"{error}; `fx-importer opt --list` lists the passes") from None


def _read(file: str) -> bytes:
    if file == STDOUT and sys.stdin is None:
        raise UsageError("standard input is closed: name a file")
    try:
        data = sys.stdin.buffer.read() if file == STDOUT else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read '{file}': {error.strerror or error}") from None
    if not data:
        raise UsageError(f"{'standard input' if file == STDOUT else repr(file)} is empty: it holds no module")
    return data


def _parts(data: bytes) -> Iterator[bytes]:
    """Yield the parts of a file, each behind as many empty lines that its line numbers are those of the file."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError("--split-input takes text: this is bytecode") from None
    start = 0
    for separator in [*SEPARATOR.finditer(text), None]:
        end = len(text) if separator is None else separator.start()
        yield ("\n" * text.count("\n", 0, start) + text[start:end]).encode()
        start = end if separator is None else separator.end()


def _run(stages: Sequence[Stage], module: ir.Module) -> None:
    trace = Trace(planned=tuple(stage.name for stage in stages))
    for stage in stages:
        try:
            with trace.stage(stage.name, module, pipeline=str(stage)):
                run_stage(stage, module)
        except StageFailed as error:
            cause = error.__cause__
            if cause is not None and isinstance(cause, ir.MLIRError):
                raise cause from None
            raise


@contextmanager
def _followed(following: Following, stages: Sequence[Stage]) -> Iterator[None]:
    """Print what ``following`` asks for, of the passes in the body. Raise `UsageError` for a pass that is not run."""
    if not (following.prints or following.timing):
        yield
        return
    from fx_importer.diagnostics.ir_printer import IrPrinter, pass_name  # they import torch
    from fx_importer.diagnostics.pass_times import PassTimes

    names = {pass_name(str(step)) for stage in stages for (step,) in single_passes(stage)}
    names |= {stage.name for stage in stages}
    if unknown := [name for name in following.print_ir_after if name not in names]:
        raise UsageError(f"--print-ir-after: the pipeline has no pass or stage named {', '.join(unknown)}")
    to_stderr = partial(echo, file=sys.stderr)
    printer = IrPrinter(following.print_ir_after, following.print_ir_after_change, following.print_ir_diff, to_stderr)
    times = PassTimes()
    with observing(*([printer] if following.prints else []), *([times] if following.timing else [])):
        yield
    if following.timing:
        to_stderr(times.table())


def _report(file: str, diagnostic: ir.DiagnosticInfo | ir.Diagnostic) -> None:
    """Print a diagnostic and its notes; ``file`` is what locations call ``-``."""
    position = _POSITION.search(str(diagnostic.location))
    where = file
    if position is not None:
        name, line, column = position.groups()
        where = f"{file if name == STDOUT else name}:{line}:{column}"
    severity = str(diagnostic.severity).rpartition(".")[2].lower()
    echo(f"{where}: {severity}: {diagnostic.message}", file=sys.stderr)
    for note in diagnostic.notes:
        _report(file, note)


def _remark(report: Callable[[ir.Diagnostic], None], diagnostic: ir.Diagnostic) -> bool:
    """Print a warning or a remark; errors are in the exception of the pass that failed."""
    if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
        return False
    report(diagnostic)
    return True


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
