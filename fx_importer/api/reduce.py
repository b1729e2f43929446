"""Reduces what fails: the program of a report, or one that was lowered and computes something else."""

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
from fx_importer.api.reproduce import facts_of
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.diagnose import investigator
from fx_importer.compiler.driver import compile_programs
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import operator_named
from fx_importer.importing import FxImporter
from fx_importer.mlir.module_io import atomic_directory
from fx_importer.options import ExportOptions, PrintOptions, RunOptions, options_from_text
from fx_importer.process.scratch import Scratch
from fx_importer.process.worker import Child
from fx_importer.reduction import Reduction, Search, Setting, Trials
from fx_importer.verification import Tolerance

PATIENCE = 60.0
"""Seconds that a stage may take before it counts as one that does not end."""


@dataclass(frozen=True)
class Job:
    """What is to be reduced. It pickles, if its rules can be imported."""

    program: Path
    """What `torch.export.save` wrote, with example inputs."""
    setting: Setting
    stage: str | None
    """In which it should fail, if that is known."""
    patience: float = PATIENCE

    def done(self, output: str | os.PathLike[str], tell: Callable[[str], None]) -> Reduction:
        """Reduce the program, and write what is left to ``output``, a new directory, which is whole or not there.

        This process forks for each candidate: it must not have computed in threads. ``tell`` is told of each step.

        Raises:
            UsageError: if ``output`` is there or cannot be made, or the program does not fail, or not always, or in
                another stage.
        """
        torch.set_num_threads(1)  # before there are any: see `Trials`
        with atomic_directory(output) as directory:
            program = torch.export.load(self.program)
            search = Search(partial(lower_as, self.setting), self.setting, Trials(self.patience), tell)
            return search.reduced(program, directory, self.stage).moved_to(Path(output).absolute())


def job_of(directory: Path) -> Job:
    """Return the job to reduce the program of a report.

    Raises:
        UsageError: if ``directory`` holds no report, not one program, or one whose lowering only Python can say.
    """
    facts = facts_of(directory)
    files = [directory / file for file in facts["programs"].values()]
    if len(files) != 1 or not files[0].exists():
        raise UsageError(f"'{directory}' does not hold one program to reduce: report.md says what it has")
    if not_recorded := facts.get("not_recorded", facts.get("unsaid")):  # "unsaid" in version 0.1
        raise UsageError(
            f"'{directory}' is of a lowering with {', '.join(not_recorded)}, which a report cannot hold: reduce the "
            "model itself"
        )
    options = options_from_text(facts["options"])
    setting = Setting(options, None, Tolerance())
    return Job(files[0], setting, facts["stage"], options.running.time_limit or PATIENCE)


def lower_as(
    setting: Setting,
    f: Any,
    args: Sequence[Any],
    dynamic_shapes: Any,
    entering: Callable[[StageRecord], None],
    *,
    explain: bool,
) -> None:
    """Lower a model as ``setting`` says, and hold it against eager where there is a backend. Raises what goes wrong."""
    options = replace(
        setting.options, export=ExportOptions(dynamic_shapes), printing=PrintOptions(), running=RunOptions()
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
    """What answers in the process of `reduce`."""

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
    """Reduce a program that does on ``backend`` what eager PyTorch does not, to as little as does so too.

    It is done in a process of its own, which runs each candidate in another.

    Args:
        lowered: what `lower` gave for a program that has example inputs. Its rules must be functions that can be
            imported.
        output: a new directory for what is left: ``reduced.py``, ``reduced.mlir`` and ``report.md``.
        backend: a name of a backend, as for `Lowered.verify`.
        rtol: as for `Lowered.verify`.
        atol: as for `Lowered.verify`.

    Raises:
        UsageError: if ``output`` is there or cannot be made, a rule cannot be imported, or the program does not fail,
            or not always.
    """
    scratch = Scratch()
    torch.export.save(lowered.exported[next(iter(lowered.exported))], scratch.path / "program.pt2")
    setting = Setting(lowered.options, backend, Tolerance(rtol, atol))
    return in_a_process(Job(scratch.path / "program.pt2", setting, None), output)


def in_a_process(job: Job, output: str | os.PathLike[str]) -> Reduction:
    """Return ``job.done(output)``, from a process of its own."""
    job = replace(job, setting=_keyed_by(str, job.setting))  # operators do not pickle
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"a rule or a pass of this lowering cannot be imported by another process ({error}): define it at the top "
            "of a module"
        ) from None
    return Child("fx_importer.api.reduce:Reducer").ask("the reducer", (job, Path(output).absolute()))


def _keyed_by(key: Callable[[Any], Any], setting: Setting) -> Setting:
    """Return ``setting`` with other keys to its rules."""
    given = setting.options.decompositions
    table = None if given.table is None else {key(operator): rule for operator, rule in given.table.items()}
    changed = replace(given, table=table, extra={key(operator): rule for operator, rule in given.extra.items()})
    return replace(setting, options=replace(setting.options, decompositions=changed))
