"""Pass pipelines in a child process, where crashes and exceeded limits of time and memory become exceptions.

`run_stages` runs a pipeline on one module, `IsolatedStages` one stage at a time, `IsolatedProber` pipelines on
thousands of small modules.
"""

from __future__ import annotations

import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import CrashedError, StageFailed
from fx_importer.mlir.bindings import bytecode_of, ir, load_dialects, new_context
from fx_importer.mlir.module_contents import replace_contents
from fx_importer.options import Limits, RunOptions
from fx_importer.pipelines.module_transfer import ModuleTransfer
from fx_importer.pipelines.pipeline_parser import is_known, parse_steps
from fx_importer.pipelines.runner import run_stage
from fx_importer.pipelines.stage import RewriteStep, Stage
from fx_importer.process.child_process import check_memory_can_be_watched
from fx_importer.process.scratch import Scratch
from fx_importer.process.worker import Child, RestartingWorker

NO_LIMITS = Limits()


RunStage = Callable[..., None]
"""Runs a `Stage` on a module; with ``print_passes`` it prints the module after each pass."""


def stage_runner(module: ir.Module, running: RunOptions) -> RunStage:
    """Return a function that runs stages on ``module``, here or in a new process. Raises as `IsolatedStages` does."""
    if running.isolate:
        return IsolatedStages(module, running.limits).run
    return functools.partial(run_stage, module=module)


def run_stages(
    stages: Sequence[Stage] | str, module: ir.Module, limits: Limits = NO_LIMITS, *, trace: Trace | None = None
) -> None:
    """Run ``stages``, or a pipeline in MLIR's syntax, on ``module`` in place, in a new process.

    ``limits`` apply to each stage. The stages are recorded in ``trace``, whose reporter writes reports; by default
    there are no reports. A stage that fails leaves ``module`` unchanged.

    Raises:
        UsageError: if neither MLIR nor this package has a pass.
        StageFailed: as without a process.
        CrashedError: with the stage and the pass, if the process ended.
    """
    trace = Trace() if trace is None else trace
    isolated = IsolatedStages(module, limits)
    for stage in _as_stages(stages):
        with trace.stage(stage.name, module, pipeline=str(stage)):
            isolated.run(stage)


class IsolatedStages:
    """Runs stages one after another on a module, which must not change in between.

    The process keeps the module from the first stage on, and sends the changed one back after each. It starts with
    this object; the first stage waits for it.
    """

    def __init__(self, module: ir.Module, limits: Limits = NO_LIMITS, child: Child | None = None):
        """Start a process, unless ``child`` is one.

        Raises `UsageError` for a memory limit on systems without ``/proc``.
        """
        self._module = module
        self._child = child or _start_child(limits)
        self._limits = limits
        self._scratch = Scratch()
        self._names = itertools.count()
        self._transfer = ModuleTransfer(module.context)
        self._sent = False
        self._is_known = child is None

    def run(self, stage: Stage, *, print_passes: bool = False) -> None:
        """Run ``stage``; in this process, if it has a function that another process cannot import.

        ``print_passes`` prints to standard error at the end of the stage.

        Raises:
            UsageError: as `run_stage` does.
            ReportedError: where `run_stage` raises an `ir.MLIRError`, with the same diagnostics.
            CrashedError: if the process ended; every later stage raises it too.
        """
        if not _can_be_sent(stage):
            run_stage(stage, self._module, print_passes=print_passes)
            self._sent = False
            return
        context = self._module.context
        before, made = (self._scratch.path / f"{next(self._names)}.mlirbc" for _ in range(2))
        if not self._sent:
            with self._scratch.writing():
                self._transfer.write(self._module, before)
            self._sent = True
        sent = before if before.exists() else None
        request = ("run", sent, stage.name, str(stage), made, print_passes, context.allow_unregistered_dialects)
        if not self._is_known:  # a process that exists has weights of other modules
            self._child.ask("the pipeline's process", ("begin",))
            self._is_known = True
        (warned, failure), context.allow_unregistered_dialects = _ask_child(self._child, request, self._limits)
        if print_passes:
            sys.stderr.write(self._child.output())
        _replay_outcome(warned, failure)
        replace_contents(self._module, self._transfer.read(made).operation)


@dataclass(frozen=True)
class PipelineOutcome:
    """The outcome of a pipeline on one module."""

    error: StageFailed | CrashedError | None
    """None if all stages passed. ``error.stage`` is the stage that failed."""
    module: bytes | None
    """The bytecode after the last stage, if it was requested and all stages passed."""


class IsolatedProber:
    """Runs pipelines on many small modules in one process, which is restarted after a crash.

    Stages with functions that another process cannot import run in this one.

        prober = Prober(Limits(seconds=10))
        outcome = prober.run("func.func @main() { return }", pipeline_for("tosa").stages)
        outcome.error  # None, or a StageFailed with .stage and .diagnostics, or a CrashedError with .pass_name, .signal

    It is not thread-safe: each thread needs its own.
    """

    def __init__(self, limits: Limits = NO_LIMITS):
        """Start the process. ``limits`` apply to each module. Raises `UsageError` as `IsolatedStages` does."""
        self._limits = limits
        self._worker = RestartingWorker(functools.partial(_start_child, limits))
        self._worker.running()

    def run(self, module: str | bytes, stages: Sequence[Stage] | str, *, result: bool = False) -> PipelineOutcome:
        """Run ``stages``, or a pipeline in MLIR's syntax, on ``module``, given as text or bytecode.

        With ``result``, the outcome has the resulting module.

        Raises:
            UsageError: if neither MLIR nor this package has a pass, or ``module`` cannot be parsed.
        """
        text: str | bytes | None = module
        parts = [(is_sent, list(part)) for is_sent, part in groupby(_as_stages(stages), _can_be_sent)]
        for number, (crosses, part) in enumerate(parts):
            assert text is not None
            wanted = result or number + 1 < len(parts)
            outcome = (self._run_in_child if crosses else _run_here)(text, part, wanted)
            if outcome.error:
                return outcome
            text = outcome.module
        return PipelineOutcome(None, text if result and not isinstance(text, str) else None)

    def runner(self, module: ir.Module) -> RunStage:
        """Return a function that runs stages on ``module`` in this process, as `IsolatedStages` does."""
        return IsolatedStages(module, self._limits, self._worker.running()).run

    def _run_in_child(self, module: str | bytes, stages: Sequence[Stage], result: bool) -> PipelineOutcome:
        request = ("probe", module, [(stage.name, str(stage)) for stage in stages], result)
        try:
            stage, warned, failure, made = _ask_child(self._worker.running(), request, self._limits)
        except CrashedError as error:
            return PipelineOutcome(error, None)
        try:
            with Trace().stage(stage):
                _replay_outcome(warned, failure)
        except StageFailed as error:
            return PipelineOutcome(error, None)
        return PipelineOutcome(None, made)


def _run_here(module: str | bytes, stages: Sequence[Stage], result: bool) -> PipelineOutcome:
    """Run stages whose functions only this process has."""
    context = new_context()
    context.allow_unregistered_dialects = True
    load_dialects(context)
    read = ir.Module.parse(module, context)
    try:
        for stage in stages:
            with Trace().stage(stage.name):
                run_stage(stage, read)
    except StageFailed as error:
        return PipelineOutcome(error, None)
    if not result:
        return PipelineOutcome(None, None)
    return PipelineOutcome(None, bytecode_of(read.operation))


def _ask_child(child: Child, request: Any, limits: Limits) -> Any:
    try:
        return child.ask("the pipeline's process", request, limits)
    except CrashedError as error:
        stage, _, name = child.noted.partition("\n")
        if not stage:
            raise
        what = f"stage '{stage}'" + (f", in the pass '{name}'," if name else "")
        raise CrashedError(
            what, error.signal, error.output, limit=error.limit, stage=stage, pass_name=name or None
        ) from None


def _replay_outcome(warned: Sequence[Warning], failure: Exception | None) -> None:
    """Issue the warnings of a stage, and raise its failure."""
    for warning in warned:
        warnings.warn(warning, stacklevel=3)
    if failure:
        raise failure


_RUNNER = "fx_importer.pipelines.isolated_runner_child:Runner"


def _start_child(limits: Limits) -> Child:
    if limits.memory is not None:
        check_memory_can_be_watched()
    return Child(_RUNNER)


def _as_stages(stages: Sequence[Stage] | str) -> Sequence[Stage]:
    return [Stage("pipeline", "", parse_steps(stages))] if isinstance(stages, str) else stages


def _can_be_sent(stage: Stage) -> bool:
    """Whether another process can import every function of ``stage``."""
    return all(is_known(step) for step in stage.passes if isinstance(step, RewriteStep))
