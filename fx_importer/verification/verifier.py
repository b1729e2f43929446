"""Verification: runs of a lowered program on backends, compared with eager PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.calls.backend import Backend, Loaded
from fx_importer.calls.caller import Caller
from fx_importer.diagnostics import progress
from fx_importer.diagnostics.progress import counted
from fx_importer.engines import BackendOptions, IsolatedBackend, Worker, engine_named
from fx_importer.errors import CrashedError, NotInstalledError, UsageError
from fx_importer.fx_graph.host_programs import HostTensors
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.tensor_elements import missing_values
from fx_importer.verification.comparison import Tolerance, compare
from fx_importer.verification.expected import expected_of
from fx_importer.verification.program_results import call_named, narrowing
from fx_importer.verification.subject import Inputs, Named, Subject
from fx_importer.verification.verdict import Check, OutputCheck, Status, Verdict


@dataclass(frozen=True)
class Chosen:
    """A backend to run on."""

    name: str
    load: Callable[[ir.Module, str], Loaded]
    required: bool = True


def verify(
    subject: Subject,
    inputs: Sequence[Inputs],
    backends: Sequence[str | Backend],
    tolerance: Tolerance,
    isolate: bool,
    required: str | None = None,
) -> Verdict:
    """Call ``subject`` with each of ``inputs``, in order, in eager PyTorch and on ``backends``; see `Lowered.verify`.

    If ``required`` names one of them, the others need not be installed.
    """
    calls = [named(argument, subject.exported) for argument in inputs or example_inputs(subject.exported)]
    progress.enter("run in PyTorch")
    expected = expected_of(subject, calls, tolerance)
    if expected.saturations is not None:
        expected.saturations.warn(stacklevel=4)  # `verify_lowered`, `Lowered.verify`
    checks = [
        check
        for backend in choose(subject, backends, isolate, required)
        for check in run(subject, backend, expected.calls, tolerance)
    ]
    checks = [check.with_outputs(expected.of_the_model.get((check.function, check.inputs), ())) for check in checks]
    return Verdict(subject.options.output_type, (*expected.capture, *checks), reference=expected.remark)


def example_inputs(programs: Mapping[str, ExportedProgram]) -> list[Inputs]:
    """Return the example inputs of each program. Raises `UsageError` if one has none."""
    inputs: list[Inputs] = []
    for name, program in programs.items():
        if program.example_inputs is None:
            raise UsageError(f"the exported program '{name}' has no example inputs: pass some")
        args, kwargs = program.example_inputs
        inputs.append(Inputs(args, kwargs, name))
    return inputs


def named(inputs: Inputs, programs: Mapping[str, Any]) -> Inputs:
    """Return ``inputs`` on the CPU, with the name of their function.

    Raises `UsageError` for another name, and for tensors without values.
    """
    for path, leaf in pytree.tree_flatten_with_path((tuple(inputs.args), dict(inputs.kwargs)))[0]:
        if isinstance(leaf, torch.Tensor) and (problem := missing_values(leaf)):
            raise UsageError(f"the input {pytree.keystr(path[1:])} {problem}")
    args, kwargs = pytree.tree_map(HostTensors(), (inputs.args, inputs.kwargs))
    if inputs.function is None and len(programs) == 1:
        return Inputs(args, kwargs, next(iter(programs)))
    if inputs.function not in programs:
        there = ", ".join(f"'{program}'" for program in programs)
        raise UsageError(f"Inputs(..., function={inputs.function!r}) names no function: available are {there}")
    return Inputs(args, kwargs, inputs.function)


def choose(
    subject: Subject, backends: Sequence[str | Backend], isolate: bool, required: str | None = None
) -> list[Chosen]:
    """Return the backends by name; with ``isolate``, those that may crash share one other process.

    Raises:
        UsageError: for an unknown name.
    """
    worker = Worker() if isolate else None
    return [chosen(subject, backend, worker, required is None or backend == required) for backend in backends]


def chosen(subject: Subject, backend: str | Backend, worker: Worker | None, required: bool = True) -> Chosen:
    """Return a backend, in the process of ``worker`` if it may crash.

    Raises:
        UsageError: for an unknown name.
    """
    if not isinstance(backend, str):
        return Chosen(backend.name, backend.load, required)
    engine = engine_named(backend)
    options = BackendOptions(subject.stubs, programs=subject.programs, manifest=subject.manifest)
    here = engine.create(options)
    # Operators of the user are registered in this process only.
    stays = engine.isolated or engine.runs_programs or (engine.runs_stubs and subject.manifest.operator_stubs)
    apart = None if worker is None or stays else IsolatedBackend(backend, worker)
    return Chosen(backend, (apart or here).load, required)


def run(
    subject: Subject, backend: Chosen, calls: Sequence[tuple[Inputs, int, Named]], tolerance: Tolerance
) -> list[Check]:
    """Compile the called functions for ``backend``, and call them with a state of their own."""
    progress.enter(f"run on {backend.name}")
    manifest = subject.manifest
    unloaded: dict[str, Exception] = {}
    loaded: dict[str, Loaded] = dict.fromkeys(manifest.functions, _never)
    for name in dict.fromkeys(call.function or "" for call, _, _ in calls):
        try:
            loaded[name] = backend.load(subject.linked, name)
        except Exception as error:  # any failure of a backend is a result here
            unloaded[name] = error
    caller = Caller(manifest, loaded, subject.initial_state())
    checks: list[Check] = []
    for inputs, number, expected in counted(calls, "calls"):
        name = inputs.function or ""
        start = time.perf_counter()
        try:
            if name in unloaded:
                raise unloaded[name]
            results = call_named(caller, inputs)
        except Exception as error:
            status, reason = _failure(error, loading=name in unloaded)
            signal = error.signal if isinstance(error, CrashedError) else None
            checks.append(Check(name, number, backend.name, status, (), reason, signal, required=backend.required))
            continue
        seconds = time.perf_counter() - start
        narrow = narrowing(manifest.functions[name])
        outputs = tuple(
            OutputCheck(what, compare(narrow(value), narrow(wanted), tolerance))
            for (what, value), (_, wanted) in zip(results, expected, strict=True)
        )
        status = Status.PASSED if all(output.comparison.passed for output in outputs) else Status.MISMATCH
        checks.append(Check(name, number, backend.name, status, outputs, "", None, seconds, backend.required))
    return checks


def _never(*_: Any) -> tuple[Any, ...]:
    raise AssertionError("a function that is not called was not loaded")


def _failure(error: Exception, *, loading: bool) -> tuple[Status, str]:
    match error:
        case NotInstalledError():
            return Status.NOT_INSTALLED, str(error)
        case CrashedError():
            return Status.CRASHED, str(error)
        case UsageError() if loading:
            return Status.UNSUPPORTED, str(error)
        case _:
            kind = "" if type(error).__module__.startswith("fx_importer.") else f"{type(error).__name__}: "
            return Status.FAILED, f"{kind}{error}"
