"""Expected results: of the model that the user passed, with checks of its capture, its lines and its integers.

The integer form rounds elsewhere than quantize and dequantize operators in floating point: results differ by steps.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from fx_importer.calls.saturation import LEAST_RATIO, Saturations
from fx_importer.diagnostics.mlir_diagnostics import read_frames, user_frame
from fx_importer.diagnostics.source_lines import source_line
from fx_importer.errors import UsageError
from fx_importer.frontend.user_calls import call_of_user
from fx_importer.verification.comparison import TOLERANCES, Comparison, Tolerance, compare
from fx_importer.verification.eager_reference import Observer
from fx_importer.verification.model_reference import ModelResults, call_model
from fx_importer.verification.program_results import expected_results, narrowing, results_in_turn
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
    saturations: Saturations | None = None
    """Quantized values of the exported program beyond their ranges; None if it quantizes nothing."""


def expected_of(subject: Subject, calls: Sequence[Inputs], tolerance: Tolerance) -> ExpectedResults:
    """Return the results of the model that the user passed: a module, a function, or exported programs.

    The exported program of a module or function is called too, and both once more with the first inputs: a model may
    keep numbers in Python that the program does not have. With integers, their programs are the reference, which is
    compared with the model.
    """
    saturations = Saturations.of(subject.exported)
    with torch.random.fork_rng(devices=()):
        captured = _results_and_once_more(subject, calls, saturations)
    integers = subject.computed is not subject.exported
    expected = expected_results(subject, calls) if integers else captured[: len(calls)]
    model, remark = _model_results(subject, [*calls, *calls[:1]][: len(captured)], tolerance)
    numbers = [[call.function for call in calls[:i]].count(call.function) for i, call in enumerate(calls)]
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
    triples = list(zip(calls, numbers, wanted, strict=False))
    return ExpectedResults(triples, capture, of_the_model, remark, saturations)


def _results_and_once_more(subject: Subject, calls: Sequence[Inputs], observe: Observer | None) -> list[Named]:
    """Return the results of the exported programs, and of one more call with the first inputs if it does not fail."""
    again = calls[:1] if subject.originals else ()
    results = results_in_turn(subject, [*calls, *again], subject.exported, observe)
    results_of_calls = [next(results) for _ in calls]
    try:
        return [*results_of_calls, *results]
    except Exception:  # state that has advanced may refuse the inputs
        return results_of_calls


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
    values = {**program.constants, **program.state_dict}
    tensors = {key: value for key, value in values.items() if isinstance(value, torch.Tensor)}
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
    checks: dict[tuple[str, int], tuple[OutputCheck, ...]] = {}
    for call, number, values, wanted in zip(calls, numbers, integers, of_model, strict=False):
        name = call.function or ""
        steps = steps_of_results(programs[name])
        checks[name, number] = tuple(
            OutputCheck(f"{what}, of the model", compare_quantized(value, other, steps[at] if at < len(steps) else 0.0))
            for at, ((what, value), (_, other)) in enumerate(zip(values, wanted, strict=True))
        )
    return checks


LARGEST_ERROR = 0.25
"""Largest difference of one element of it, relative to the largest magnitude of the result."""
LEAST_EQUAL = 0.9
"""Least part of equal elements of results that are places or bools, not quantized values."""
_QUANTIZED = (torch.int8, torch.uint8, torch.int16)


def compare_quantized(actual: Any, expected: Any, step: float = 0.0) -> Comparison:
    """Compare a result in integers with eager's of the program that was passed.

    It passes if no element differs by more than one ``step`` (1 for int8, uint8 and int16), or within `LEAST_RATIO`
    and `LARGEST_ERROR`. Of other integers and bools, `LEAST_EQUAL` elements are equal, and a single one is.
    """
    check = compare(actual, expected)
    if check.passed or check.problem or not isinstance(expected, torch.Tensor):
        return check
    if expected.dtype in TOLERANCES and not (check.nan_positions_equal and check.infinities_equal):
        return check
    if expected.dtype not in _QUANTIZED and expected.dtype not in TOLERANCES:
        equal = 1 - check.out_of_tolerance / check.elements
        return replace(check, out_of_tolerance=0) if check.elements > 1 and equal >= LEAST_EQUAL else check
    step = 1.0 if expected.dtype in _QUANTIZED else step
    if check.max_absolute <= step * 1.001:
        return replace(check, out_of_tolerance=0)
    ratio = _ratio(actual, expected)
    if ratio >= LEAST_RATIO and check.max_absolute <= LARGEST_ERROR * check.magnitude:
        return replace(check, out_of_tolerance=0)
    return replace(
        check,
        problem=f"signal to noise relative to the quantized program in eager PyTorch is {ratio:.1f} dB, and the "
        f"largest difference is {check.max_absolute:.3g}. Accepted are one step, or {LEAST_RATIO:.0f} dB and at most "
        f"{LARGEST_ERROR} of the largest magnitude, {check.magnitude:.3g}",
    )


def _ratio(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the signal to noise of the elements that are finite, in dB."""
    kind = torch.complex128 if expected.is_complex() else torch.float64
    a, e = actual.to(kind), expected.to(kind)
    finite = a.isfinite() & e.isfinite()
    signal, noise = (float(part[finite].abs().square().sum()) for part in (e, a - e))
    return math.inf if noise == 0 else 10 * math.log10(max(signal, 1e-300) / noise)


def steps_of_results(program: ExportedProgram) -> list[float]:
    """Return the scale of each result that a dequantize operator with one known scale returns, and 0 for others."""
    specs = program.graph_signature.output_specs
    results: Any = program.graph.output_node().args[0]
    return [_scale(result) for spec, result in zip(specs, results, strict=True) if spec.kind is OutputKind.USER_OUTPUT]


def _scale(result: Any) -> float:
    called = isinstance(result, fx.Node) and str(result.target).startswith("quantized_decomposed.dequantize_per_tensor")
    scale = result.args[1] if called else 0.0
    return float(scale) if isinstance(scale, int | float) else 0.0


Line = tuple[str, int]
"""File and number."""


class ModelLines(TorchFunctionMode):
    """Mode that records the tensors that the lines of a model compute, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[Line, torch.Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``, and record its results."""
        result = func(*args, **(kwargs or {}))
        call = call_of_user(sys._getframe(1))
        if call.file:
            self.values += [((call.file, call.line), copy) for copy in _copies(result)]
        return result


class ProgramLines:
    """Observer of `Reference` that records the tensors that the lines of a model compute in its program."""

    def __init__(self) -> None:
        self.values: defaultdict[Line, list[torch.Tensor]] = defaultdict(list)

    def __call__(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> None:
        """Record the value of ``node``."""
        if (frame := user_frame(tuple(reversed(read_frames(node.meta.get("stack_trace")))))) is not None:
            self.values[frame] += _copies(value)


def first_line_that_differs(model: ModelLines, program: ProgramLines, tolerance: Tolerance) -> str:
    """Return the first line with a value in the model that it does not have in the program; empty if unknown.

    Lines that run in one of them only are not compared.
    """
    for line, value in model.values:
        others = [
            tensor
            for tensor in program.values.get(line, ())
            if (tensor.shape, tensor.dtype) == (value.shape, value.dtype)
        ]
        if others and not any(compare(other, value, tolerance).passed for other in others):
            source = source_line(*line)
            return f"{line[0]}:{line[1]}" + (f": {source}" if source else "")
    return ""


def _copies(value: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            yield leaf.detach().clone()
