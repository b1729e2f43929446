"""Reduction of programs that fail to lower or compute wrong results."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fx_importer.api.lowered import Lowered
from fx_importer.api.reproduce import facts_of, file_of, options_of
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.diagnose import investigator
from fx_importer.compiler.driver import compile_programs
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import operator_named
from fx_importer.fx_graph.program_files import read_program
from fx_importer.importing import FxImporter
from fx_importer.mlir.output_files import atomic_directory, file_for_torch
from fx_importer.options import ExportOptions, PrintOptions, RunOptions
from fx_importer.process.scratch import Scratch
from fx_importer.process.worker import Child
from fx_importer.reduction import Reduction, Search, Setting, Trials
from fx_importer.verification import Tolerance

PATIENCE = 60.0
"""Seconds after which a stage counts as not terminating."""


@dataclass(frozen=True)
class Job:
    """A reduction task. It can be pickled if its rules can be imported."""

    program: Path
    """The output of `torch.export.save`, with example inputs."""
    setting: Setting
    stage: str | None
    """The stage expected to fail, if known."""
    patience: float = PATIENCE
    trust: bool = True
    """See `read_program`."""

    def done(self, output: str | os.PathLike[str], tell: Callable[[str], None]) -> Reduction:
        """Reduce the program and write the result atomically to ``output``, a new directory.

        This process forks for each candidate: it must not have computed in threads. ``tell`` is called for each step.

        Raises:
            UsageError: if ``output`` exists or cannot be created, or the program does not fail, or not always, or in
                another stage.
        """
        torch.set_num_threads(1)  # before there are any: see `Trials`
        with atomic_directory(output) as directory:
            program = read_program(self.program, trust=self.trust)
            search = Search(partial(lower_as, self.setting), self.setting, Trials(self.patience), tell)
            return search.reduced(program, directory, self.stage).moved_to(Path(output).absolute())


def job_of(directory: Path, *, trust: bool = False) -> Job:
    """Return the task to reduce the program of a report. `reproduce` describes ``trust``.

    Raises:
        UsageError: if ``directory`` holds no report, not exactly one program, or options that have no text form.
    """
    facts = facts_of(directory)
    files = [file_of(directory, file) for file in facts["programs"].values()]
    if len(files) != 1 or not files[0].exists():
        raise UsageError(f"'{directory}' does not hold one program to reduce: report.md says what it has")
    if not_recorded := facts.get("not_recorded"):
        raise UsageError(
            f"'{directory}' is of a lowering with {', '.join(not_recorded)}, which a report cannot hold: reduce the "
            "model itself"
        )
    options = options_of(facts, directory, trust=trust)
    setting = Setting(options, None, Tolerance())
    return Job(files[0], setting, facts["stage"], options.running.time_limit or PATIENCE, trust)


def lower_as(
    setting: Setting,
    f: Any,
    args: Sequence[Any],
    dynamic_shapes: Any,
    entering: Callable[[StageRecord], None],
    *,
    explain: bool,
) -> None:
    """Lower a model with ``setting`` and compare it with eager mode if there is a backend. Raises any failure."""
    options = replace(
        setting.options,
        export=ExportOptions(dynamic_shapes),
        importing=replace(setting.options.importing, input_names=(), output_names=()),  # a part has others
        printing=PrintOptions(),
        running=RunOptions(),
    )
    calls = {options.importing.func_name: (f, args, {})}
    trace = Trace(entering=entering)
    if explain:
        trace.investigate = investigator(Compilation.of(options))
    lowered = Lowered.of(compile_programs(calls, FxImporter(), options, report=False, trace=trace))
    if setting.backend is not None:
        entering(StageRecord(f"on {setting.backend}", snapshot=lowered.module.operation))
        rtol, atol = setting.tolerance.rtol, setting.tolerance.atol
        lowered.verify(*args, backends=[setting.backend], rtol=rtol, atol=atol, isolate=False).raise_if_failed()


class Reducer:
    """Server in the process of `reduce`."""

    def __init__(self, note: Callable[[str], None]):
        self._note = note

    def __call__(self, request: tuple[Job, Path]) -> Reduction:
        job, output = request
        setting = _keyed_by(lambda key: operator_named(key) or key, job.setting)
        return replace(job, setting=setting).done(output, self._note)


def reduce(
    lowered: Lowered,
    output: str | os.PathLike[str],
    *,
    backend: str,
    rtol: float | None = None,
    atol: float | None = None,
) -> Reduction:
    """Reduce a program whose results on ``backend`` differ from eager PyTorch to a smaller one that differs too.

    This is done in another process, which runs each candidate in a process of its own.

    Args:
        lowered: the result of `lower` for a program with example inputs. Its rules must be functions that can be
            imported.
        output: a new directory for the result: ``reduced.py``, ``reduced.mlir`` and ``report.md``.
        backend: a name of a backend, as for `Lowered.verify`.
        rtol: as for `Lowered.verify`.
        atol: as for `Lowered.verify`.

    Raises:
        UsageError: if ``output`` exists or cannot be created, a rule cannot be imported, or the program does not fail,
            or not always.
    """
    scratch = Scratch()
    with scratch.writing(), file_for_torch(scratch.path / "program.pt2") as file:
        torch.export.save(lowered.exported[next(iter(lowered.exported))], file)
    setting = Setting(lowered.options, backend, Tolerance(rtol, atol))
    return in_a_process(Job(scratch.path / "program.pt2", setting, None), output)


def in_a_process(job: Job, output: str | os.PathLike[str]) -> Reduction:
    """Return ``job.done(output)``, computed in another process."""
    job = replace(job, setting=_keyed_by(str, job.setting))  # operators cannot be pickled
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"a rule or a pass of this lowering cannot be imported by another process ({error}): define it at the top "
            "of a module"
        ) from None
    return Child("fx_importer.api.reduce:Reducer").ask("the reducer", (job, Path(output).absolute()))


def _keyed_by(key: Callable[[Any], Any], setting: Setting) -> Setting:
    """Return ``setting`` with ``key`` applied to the operators of its decomposition rules."""
    given = setting.options.decompositions
    table = None if given.table is None else {key(operator): rule for operator, rule in given.table.items()}
    changed = replace(given, table=table, extra={key(operator): rule for operator, rule in given.extra.items()})
    return replace(setting, options=replace(setting.options, decompositions=changed))
