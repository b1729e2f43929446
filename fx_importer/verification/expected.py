"""ExpectedResults results: of the model that the user passed, with checks of its capture and of its integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer.errors import UsageError
from fx_importer.verification.comparison import Tolerance, compare
from fx_importer.verification.line_values import ModelLines, ProgramLines, first_line_that_differs
from fx_importer.verification.model_reference import ModelResults, call_model
from fx_importer.verification.program_results import expected_results, narrowing, results_in_turn
from fx_importer.verification.quantized_comparison import compare_quantized, steps_of_results
from fx_importer.verification.subject import Inputs, Named, Subject
from fx_importer.verification.verdict import CAPTURE, Check, OutputCheck, Status

Comparisons = Mapping[tuple[str, int], tuple[OutputCheck, ...]]
"""Comparisons of results by function and number of its call."""


@dataclass(frozen=True)
class ExpectedResults:
    """What the results of a module are compared with."""

    calls: Sequence[tuple[Inputs, int, Named]]
    """Each call, the number of calls of its function before it, and the expected results."""
    capture: Sequence[Check] = ()
    """Calls in which the exported program differs from the model."""
    of_the_model: Comparisons = field(default_factory=dict[Any, Any])
    """Comparisons of integers with the model."""
    remark: str = ""
    """Why the exported program is the reference in place of the model."""


def expected_of(subject: Subject, calls: Sequence[Inputs], tolerance: Tolerance) -> ExpectedResults:
    """Return the results of the model that the user passed: a module, a function, or exported programs.

    The exported program of a module or function is called too, and both once more with the first inputs: a model may
    keep numbers in Python that the program does not have. With integers, their programs are the reference, which is
    compared with the model.
    """
    with torch.random.fork_rng(devices=()):
        captured = _results_and_once_more(subject, calls)
    integers = subject.computed is not subject.exported
    expected = expected_results(subject, calls) if integers else captured[: len(calls)]
    model, remark = _model_results(subject, [*calls, *calls[:1]][: len(captured)], tolerance)
    numbers = [[each.function for each in calls[:i]].count(call.function) for i, call in enumerate(calls)]
    numbers.append(len(calls))
    of_model = (
        captured
        if model is None
        else [
            ours if isinstance(results, Exception) else results
            for ours, results in zip(captured, model.results, strict=True)
        ]
    )
    of_the_model = _integers_against(of_model, expected, calls, numbers, subject.exported) if integers else {}
    capture = [] if model is None else _capture_checks(subject, calls, captured, model, tolerance)
    wanted = expected if integers else of_model
    return ExpectedResults(list(zip(calls, numbers, wanted, strict=False)), capture, of_the_model, remark)


def _results_and_once_more(subject: Subject, calls: Sequence[Inputs]) -> list[Named]:
    """Return the results of the exported programs, and of one more call with the first inputs if it does not fail."""
    again = calls[:1] if subject.originals else ()
    results = results_in_turn(subject, [*calls, *again], subject.exported)
    found = [next(results) for _ in calls]
    try:
        return [*found, *results]
    except Exception:  # state that has advanced may refuse the inputs
        return found


def _model_results(
    subject: Subject, calls: Sequence[Inputs], tolerance: Tolerance, mode: ModelLines | None = None
) -> tuple[ModelResults | None, str]:
    """Return the results of the model; or None, and why it is not called if it is not an exported program.

    ``mode`` is around the last call.
    """
    if not subject.originals:
        return None, ""
    ((name, original),) = subject.originals.items()
    program = subject.exported[name]
    held = {**program.constants, **program.state_dict}
    tensors = {key: value for key, value in held.items() if isinstance(value, torch.Tensor)}
    initial = subject.initial_state()
    state = {key: initial[key].detach().clone() for key in subject.manifest.state}
    function = subject.manifest.functions[name]
    try:
        return call_model(original, function, calls, tensors, state, tolerance, mode), ""
    except Exception as error:  # of the user's objects
        reason = f": {error}" if isinstance(error, UsageError) else f" ({type(error).__name__}: {error})"
        return None, f"{_INSTEAD}: the model cannot be copied{reason}"


_INSTEAD = "results are compared with the exported program and not with the model"


def _capture_checks(
    subject: Subject, calls: Sequence[Inputs], captured: Sequence[Named], model: ModelResults, tolerance: Tolerance
) -> list[Check]:
    """Return a check for each call in which the exported program does not compute what the model does."""
    (name,) = subject.originals
    narrow = narrowing(subject.manifest.functions[name])
    checks: list[Check] = []
    for number, (ours, results) in enumerate(zip(captured, model.results, strict=True)):
        if checks and number == len(calls):
            break
        if isinstance(results, Exception):
            reason = f"the model raises {type(results).__name__} and the exported program does not: {results}"
            checks.append(Check(name, number, CAPTURE, Status.FAILED, reason=reason))
            continue
        outputs = [
            OutputCheck(what, compare(narrow(value), narrow(wanted), tolerance))
            for (what, value), (_, wanted) in zip(ours, results, strict=True)
        ]
        outputs += model.unknown_writes[number]
        if not all(output.comparison.passed for output in outputs):
            again = ", in one more call with the first inputs" if number == len(calls) else ""
            reason = f"the exported program differs from the model{again}"
            if not checks and (line := _line_that_differs(subject, [*calls, *calls[:1]][: number + 1], tolerance)):
                reason += f", first at {line}"
            if model.attributes:
                reason += f". The model changes its Python attributes: {', '.join(model.attributes)}"
            checks.append(Check(name, number, CAPTURE, Status.MISMATCH, tuple(outputs), reason))
    return checks


def _line_that_differs(subject: Subject, calls: Sequence[Inputs], tolerance: Tolerance) -> str:
    """Return the first line that computes other values in the last of ``calls``; empty if it is unknown."""
    model, program = ModelLines(), ProgramLines()
    _model_results(subject, calls, tolerance, model)
    with torch.random.fork_rng(devices=()):
        results = results_in_turn(subject, calls, subject.exported, program)
        for _ in calls:
            program.values.clear()
            next(results)
    return first_line_that_differs(model, program, tolerance)


def _integers_against(
    of_model: Sequence[Named],
    integers: Sequence[Named],
    calls: Sequence[Inputs],
    numbers: Sequence[int],
    programs: Mapping[str, ExportedProgram],
) -> Comparisons:
    """Compare results in integers with the model's."""
    found: dict[tuple[str, int], tuple[OutputCheck, ...]] = {}
    for call, number, values, wanted in zip(calls, numbers, integers, of_model, strict=False):
        name = call.function or ""
        steps = steps_of_results(programs[name])
        found[name, number] = tuple(
            OutputCheck(f"{what}, of the model", compare_quantized(value, other, steps[at] if at < len(steps) else 0.0))
            for at, ((what, value), (_, other)) in enumerate(zip(values, wanted, strict=True))
        )
    return found
