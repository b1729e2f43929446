"""Reduction of programs that fail to lower or compute wrong results."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.api.reproduce import facts_of, file_of, options_of
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.compile_programs import compile_programs
from fx_importer.compiler.diagnose import investigator
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.errors import UsageError
from fx_importer.fx_graph.program_files import read_program
from fx_importer.importing import FxImporter
from fx_importer.mlir.output_files import atomic_directory, file_for_torch
from fx_importer.options import ExportOptions, PrintOptions, RunOptions
from fx_importer.process.scratch import Scratch
from fx_importer.process.worker import Child
from fx_importer.reduction import Reduction, Search, Setting, Trials
from fx_importer.results.lowered import Lowered
from fx_importer.verification import Tolerance
from fx_importer.verification.definitions import Definitions, pickled, unpickled
from fx_importer.verification.function_source import NotPythonError

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
        export=ExportOptions(dynamic_shapes, quantized=setting.options.export.quantized),
        importing=replace(setting.options.importing, input_names=(), output_names=()),  # a part has others
        printing=PrintOptions(),
        running=RunOptions(),
    )
    calls = {options.importing.func_name: (f, args, {})}
    trace = Trace(entering=entering)
    if explain:
        trace.investigate = investigator(Compilation.of(options))
    lowered = compile_programs(calls, FxImporter(), options, report=False, trace=trace)
    if setting.backend is not None:
        entering(StageRecord(f"on {setting.backend}", snapshot=lowered.module.operation))
        rtol, atol = setting.tolerance.rtol, setting.tolerance.atol
        lowered.verify(*args, backends=[setting.backend], rtol=rtol, atol=atol, isolate=False).raise_if_failed()


class Reducer:
    """Server in the process of `reduce`."""

    def __init__(self, note: Callable[[str], None]):
        self._note = note

    def __call__(self, request: tuple[Definitions, bytes, Path]) -> Reduction:
        definitions, data, output = request
        job: Job = unpickled(data, definitions)
        return replace(job, setting=replace(job.setting, definitions=definitions)).done(output, self._note)


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
        lowered: the result of `lower` for a program with example inputs. Its rules, passes and custom operators are
            imported by the other process; the source of functions that no module holds is copied.
        output: a new directory for the result: ``reduced.py``, ``reduced.mlir`` and ``report.md``.
        backend: a name of a backend, as for `Lowered.verify`.
        rtol: as for `Lowered.verify`.
        atol: as for `Lowered.verify`.

    Raises:
        UsageError: if ``output`` exists or cannot be created, a rule, a pass or a custom operator has no definition
            for another process, or the program does not fail, or not always.
    """
    scratch = Scratch()
    program = next(iter(lowered.exported.values()))
    with scratch.writing(), file_for_torch(scratch.path / "program.pt2") as file:
        torch.export.save(program, file)
    setting = Setting(lowered.options, backend, Tolerance(rtol, atol))
    return in_a_process(Job(scratch.path / "program.pt2", setting, None), output, operators_of(program))


def in_a_process(job: Job, output: str | os.PathLike[str], operators: Iterable[Any] = ()) -> Reduction:
    """Return ``job.done(output)``, computed in another process, which registers ``operators`` first."""
    return Child("fx_importer.api.reduce:Reducer").ask("the reducer", request_of(job, output, operators))


def request_of(
    job: Job, output: str | os.PathLike[str], operators: Iterable[Any] = ()
) -> tuple[Definitions, bytes, Path]:
    """Return the request that `Reducer` takes. Raises `UsageError` for what another process cannot define."""
    definitions = Definitions()
    try:
        for operator in operators:
            definitions.operator(operator)
        definitions.expression(job.setting.options.output_type)
        data = pickled(job, definitions)
    except NotPythonError as error:
        raise UsageError(f"another process reduces the program: {error}") from None
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"another process reduces the program, and an object in the options of this lowering cannot be sent to it: "
            f"{error}. Make rules and passes functions at the top of a module"
        ) from None
    return definitions, data, Path(output).absolute()


def operators_of(program: ExportedProgram) -> list[OpOverload]:
    """Return the operators that ``program`` calls, in its subgraphs too."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    return list({node.target: None for graph in graphs for node in graph.nodes if isinstance(node.target, OpOverload)})
