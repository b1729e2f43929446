"""The symptom of a failure, by which two failures are recognized as the same."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from fx_importer.diagnostics.mlir_diagnostics import Diagnostic, diagnostics_of
from fx_importer.errors import FxImporterError, StageFailed, UnsupportedProgramError
from fx_importer.mlir.bindings import ir
from fx_importer.verification import Comparison, MismatchError, Status


class Kind(Enum):
    """The kind of a failure."""

    FAILED = "failed"
    """A stage raised an error."""
    CRASHED = "crashed"
    """A stage crashed the process."""
    TIMED_OUT = "timed out"
    """A stage exceeded its time limit."""
    MISMATCH = "mismatch"
    """The results differ from eager PyTorch."""


FAINTER = 100
"""A mismatch whose relative size is this many times smaller may have another cause: rounding."""


_FOLLOW_UP_OPS = ("torch.constant.", "torch.prim.", "unrealized_conversion_cast", "torch_c.")


@dataclass(frozen=True)
class Symptom:
    """A failure without details that change as the program shrinks: numbers, names and locations."""

    kind: Kind
    stage: str
    """The place of the failure: a stage of the lowering, or ``on`` a backend."""
    reasons: tuple[str, ...] = ()
    """The reasons, most specific first; empty if there is no message. Without operators, the first has to persist."""
    message: str = field(default="", compare=False)
    """The original messages, for display."""
    severity: float = field(default=0.0, compare=False)
    """For a mismatch: the largest difference divided by the largest magnitude; infinite if that is not meaningful."""
    places: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """``(file, line)`` of the stack frames that the failure names."""
    operators: tuple[str, ...] = ()
    """Overloads that are unsupported on their own, such as ``aten.unfold.default``. The first has to persist."""

    def is_same_as(self, original: Symptom) -> bool:
        """Return whether this is the same failure as ``original``, possibly of a smaller program."""
        return (
            (self.kind, self.stage) == (original.kind, original.stage)
            and self._has_the_cause_of(original)
            and self.severity * FAINTER >= original.severity
        )

    @property
    def is_telling(self) -> bool:
        """Whether the first reason names what is unsupported, rather than a follow-up error of MLIR nearby."""
        return bool(self.reasons) and not any(op in self.reasons[0] for op in _FOLLOW_UP_OPS)

    def _has_the_cause_of(self, original: Symptom) -> bool:
        if original.operators:  # MLIR's message may concern any nearby operation
            return original.operators[0] in self.operators
        return not original.reasons or original.reasons[0] in self.reasons

    def __str__(self) -> str:
        return f"{self.kind.value} in {self.stage}" + (f": {self.reasons[0]}" if self.reasons else "")


def symptom_of(error: Exception, stage: str) -> Symptom:
    """Return the symptom of ``error``. ``stage`` is the last stage that ran."""
    match error:
        case MismatchError():
            return _mismatch(error, stage)
        case StageFailed(diagnostics=[_, *_]):
            symptom = _stage_failure(error.stage, error.diagnostics, str(error))
            places = tuple(
                (location.file or "", location.line or 0) for cause in error.causes for location in cause.places
            )
            operators = _once(cause.op for cause in error.causes)
            return dataclasses.replace(symptom, operators=operators, places=places or symptom.places)
        case StageFailed():
            cause = error.__cause__ or error
            return Symptom(Kind.FAILED, error.stage, (_reason(cause),), str(error))
        case ir.MLIRError():
            diagnostics = diagnostics_of(error)
            return _stage_failure(stage, diagnostics, "\n".join(map(str, diagnostics)))
        case UnsupportedProgramError():
            reasons = (f"{node.subject.partition(' = ')[2]}: {node.reason}" for node in error.unsupported_nodes)
            places = (node.where.rpartition(":") for node in error.unsupported_nodes if node.where)
            symptom = tuple((file, int(line)) for file, _, line in places)
            return Symptom(Kind.FAILED, stage, _once(map(normalized, reasons)), str(error), places=symptom)
        case _:
            return Symptom(Kind.FAILED, stage, (_reason(error),), str(error))


def crash(stage: str, how: str, output: str) -> Symptom:
    """Return the symptom of a process crash.

    ``how`` is the signal; ``output`` distinguishes one abort from another.
    """
    telling = [line for line in output.splitlines() if "LLVM ERROR" in line or "Assertion" in line]
    return Symptom(Kind.CRASHED, stage, (" ".join([how, *map(normalized, telling[:1])]),), output.strip() or how)


def _stage_failure(stage: str, diagnostics: Iterable[Diagnostic], message: str) -> Symptom:
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    reasons = _once(normalized(error.message) for error in errors)
    places = tuple(frame for error in errors for frame in error.frames)
    return Symptom(Kind.FAILED, stage, reasons, message, places=places)


def _reason(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return normalized(first if isinstance(error, FxImporterError) else f"{type(error).__name__}: {first}")


def _mismatch(error: MismatchError, stage: str) -> Symptom:
    check = next(check for check in error.verdict.checks if not check.passed)
    if check.status is Status.CRASHED:
        return crash(stage, check.signal or "an exit code", check.reason)
    if check.status is not Status.MISMATCH:
        return Symptom(Kind.FAILED, stage, (normalized(check.reason.partition("\n")[0]),), check.reason)
    wrong = [output.comparison for output in check.outputs if not output.comparison.passed]
    severity = max(map(_severity, wrong))
    return Symptom(Kind.MISMATCH, stage, _once(map(_character, wrong)), str(error), severity)


def _character(comparison: Comparison) -> str:
    if comparison.problem:
        return normalized(comparison.problem)
    if not comparison.nan_positions_equal:
        return "NaN on one side"
    return "different values" if comparison.infinities_equal else "an infinity on one side"


def _severity(comparison: Comparison) -> float:
    return comparison.max_absolute / comparison.magnitude if comparison.magnitude else float("inf")


def _once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


_SIZES = re.compile(r"(?<![\w.])(?:(?:\d+|\?)x)+(?=[a-z])")
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|\?)(?!\w)")


def normalized(message: str) -> str:
    """Return ``message`` without numbers, value names and counts, so that it is the same for a smaller program.

    Ranks and dtypes stay: ``tensor<2x3xf32>`` is ``tensor<#x#xf32>``.
    """
    text = re.sub(r"%[\w#:]+", "%", message)
    text = re.sub(r", \d+ times\b", "", text)
    text = _SIZES.sub(lambda match_: "#x" * match_[0].count("x"), text)
    return _NUMBER.sub("#", text)
