"""``fx-importer pipeline``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fx_importer.cli.commands.import_model import load_call
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.compile_programs import compile_programs
from fx_importer.compiler.driver import stages_of
from fx_importer.diagnostics.observers import observing
from fx_importer.diagnostics.pass_times import PassTimes
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.engines import Engine, default_engine, engine_named
from fx_importer.errors import UsageError
from fx_importer.fx_passes.fx_pass import FxStage
from fx_importer.importing import FxImporter
from fx_importer.options import Options
from fx_importer.pipelines import Stage
from fx_importer.pipelines.runner import single_passes

FIRST_STEPS = {"frontend": "torch.export", "importing": "import"}
"""What stages do besides FX passes."""


def show_pipeline(
    model: str | None,
    options: Options,
    engine_name: str | None,
    run: bool,
    trust: bool,
    json: Path | None = None,
) -> None:
    """Print the passes from export to the compiler of an engine, or run ``model`` and print their times.

    ``json`` gets the same.

    Raises:
        UsageError: for an engine that does not run the output type, and for ``run`` without a model.
    """
    engine = _engine(options, engine_name)
    if run and model is None:
        raise UsageError("--run needs a model")
    with json_output(json) as write:
        if model is not None and run:
            write(document(_run(model, options, engine, trust)))
            return
        lines = list(_described(options, engine))
        echo("\n".join(lines))
        write(document(lines))


def _run(model: str, options: Options, engine: Engine | None, trust: bool) -> list[dict[str, str | float | int | None]]:
    """Lower and run ``model``, print the times of stages and passes, and return them."""
    options = replace(options, running=replace(options.running, cache=False))
    times = PassTimes()
    call = load_call(model, trust)
    with observing(times), reporting_progress(True):
        lowered = compile_programs({options.importing.func_name: call}, FxImporter(), options)
        start = time.perf_counter()
        if engine is not None:
            lowered.caller(backend=engine.name)(*call[1], **call[2])
    seconds = time.perf_counter() - start
    echo(times.table())
    if engine is not None:
        echo(f"{engine.name}: {seconds:.3f} s to load the module and run it once")
    rows = [{"name": name, "seconds": seconds, "operations": count} for name, seconds, count in times.rows]
    return [*rows, *([{"name": engine.name, "seconds": seconds}] if engine is not None else [])]


def _engine(options: Options, name: str | None) -> Engine | None:
    if name is None:
        return default_engine(options.output_type)
    engine = engine_named(name)
    if options.output_type.root not in engine.accepts:
        accepted = ", ".join(output_type.value for output_type in engine.accepts) or "exported programs"
        raise UsageError(f"--engine {name} runs {accepted}, and not {options.output_type.value}: pass --output-type")
    return engine


def _described(options: Options, engine: Engine | None) -> Iterator[str]:
    """Yield a line for each stage, and for each of its passes: of FX by name, and of MLIR in MLIR's syntax."""
    yield from _stage_lines(stages_of(Compilation.of(options)))
    if engine is None:
        return
    yield f"engine {engine.name}"
    if engine.pipeline is not None:
        yield from (f"  {line}" for line in _stage_lines(engine.pipeline(options.output_type).stages))


def _stage_lines(stages: Iterable[FxStage | Stage]) -> Iterator[str]:
    for stage in stages:
        if isinstance(stage, Stage):
            yield f"{stage.name}: {stage.description}"
            yield from (f"  {step}" for (step,) in single_passes(stage))
        else:
            yield stage.name
            steps = [FIRST_STEPS[stage.name]] if stage.name in FIRST_STEPS else []
            yield from (f"  {name}" for name in [*steps, *(fx_pass.name for fx_pass in stage.passes)])
