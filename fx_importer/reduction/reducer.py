"""Reduction of a failing program to the smallest one that fails in the same way."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import read_frames
from fx_importer.diagnostics.trace import StageRecord
from fx_importer.errors import UsageError
from fx_importer.process.one_shot import output_of
from fx_importer.process.scratch import Scratch
from fx_importer.reduction.ddmin import minimized
from fx_importer.reduction.pass_reduction import Case, operations_in, reduced_case
from fx_importer.reduction.program_source import Listing, listed
from fx_importer.reduction.reduction import Reduction, Step, page
from fx_importer.reduction.repro_script import Setting, save_beside, script_of
from fx_importer.reduction.simplify import simplified
from fx_importer.reduction.subprogram import Subprogram, ValuesOf, blank_values, eager_values, part, whole
from fx_importer.reduction.symptom import Kind, Symptom, normalized
from fx_importer.reduction.trials import Attempt, Entering, Trials
from fx_importer.verification.function_source import NotPythonError

PATIENCE, LEAST_PATIENCE = 10.0, 3.0
"""Minimum time limit of a stage, in seconds, if the failure is a timeout: for the whole program and for any part."""


class LowerAgain(Protocol):
    """Lowers a model with inputs, or an exported program, with the original's options, and runs it in the same way."""

    def __call__(
        self,
        f: Any,
        args: Sequence[Any],
        dynamic_shapes: Any,
        entering: Callable[[StageRecord], None],
        *,
        explain: bool,
    ) -> None:
        """Lower and run ``f``.

        ``explain`` says whether to search for the operators that cause a failure, which takes extra time.
        """
        ...


@dataclass(frozen=True)
class Search:
    """The reduction of one program."""

    lowering: LowerAgain
    setting: Setting
    trials: Trials
    tell: Callable[[str], None]
    """Called with each step when it is done."""
    steps: list[Step] = field(default_factory=list)

    def reduced(self, program: ExportedProgram, directory: Path, expected: str | None = None) -> Reduction:
        """Reduce ``program``, and write the result to ``directory``, which exists and is empty.

        Raises:
            UsageError: if the program does not fail, not always in the same way, or not in the stage ``expected``.
        """
        symptom = self._symptom(program, expected)
        self.tell(str(symptom))
        small = self._fewer_nodes(program, symptom)
        listing = self._plainer(small, symptom)
        left = listing or small
        seconds = self.trials.patience
        save_beside(left, directory)
        script = directory / "reduced.py"
        script.write_text(script_of(left, self.setting, symptom, seconds), encoding="utf-8")
        case = self._case(left)
        if case:
            (directory / "reduced.mlir").write_text(case.text, encoding="utf-8")
        shown = confirmed(script, symptom, seconds)
        text = page(symptom, self.steps, script.read_text(encoding="utf-8"), case, confirmed=shown)
        (directory / "report.md").write_text(text, encoding="utf-8")
        return Reduction(
            symptom,
            tuple(self.steps),
            nodes=len(listing.lines) if listing else _size(small),
            script=script,
            module=directory / "reduced.mlir" if case else None,
            pipeline=case.pipeline if case else "",
            confirmed=shown,
        )

    def _symptom(self, program: ExportedProgram, expected: str | None) -> Symptom:
        """Return the symptom with which ``program`` always fails."""
        first = self.trials.run(partial(self._lower, program, (), explain=False))
        if first is None:
            raise UsageError("it does not fail here: there is nothing to reduce")
        if expected is not None and first.stage != expected:
            raise UsageError(f"it failed in the stage '{expected}', and here it fails otherwise: {first.message}")
        if first.kind is Kind.TIMED_OUT:
            self.trials.patience = min(self.trials.patience, max(PATIENCE, 10 * self.trials.slowest))
        unclear = first.kind is Kind.FAILED and not first.is_telling
        second = self.trials.run(partial(self._lower, program, (), explain=unclear))
        again = second is not None and second.is_same_as(dataclasses.replace(first, operators=()))
        if second is None or not again:
            raise UsageError(
                "it does not always fail in the same way, so that nothing can be told of its parts: first it was "
                f"'{first}', then '{second or 'no failure'}'"
            )
        return second

    def _lower(
        self, f: Any, args: Sequence[Any], entering: Entering, *, explain: bool, dynamic_shapes: Any = None
    ) -> None:
        self.lowering(f, args, dynamic_shapes, lambda record: entering(record.name), explain=explain)

    @contextmanager
    def _step(self, what: str, before: str) -> Iterator[list[str]]:
        """Record a step. The body appends its result to the list."""
        count, start = self.trials.count, time.monotonic()
        after: list[str] = []
        yield after
        self.steps.append(Step(what, before, after[-1], self.trials.count - count, time.monotonic() - start))
        self.tell(str(self.steps[-1]))

    def _same(self, attempt: Attempt, symptom: Symptom, share: float = 1.0) -> bool:
        """Return whether ``attempt`` fails with ``symptom``.

        ``share`` is its share of the program, and so of the time limit if the failure is a timeout.
        """
        patience = self.trials.patience
        other = self.trials.run(
            attempt, max(LEAST_PATIENCE, share * patience) if symptom.kind is Kind.TIMED_OUT else patience
        )
        return other is not None and other.is_same_as(symptom)

    def _fewer_nodes(self, program: ExportedProgram, symptom: Symptom) -> ExportedProgram:
        """Return the smallest part of ``program`` found that still fails."""
        values_of = partial(eager_values if self.setting.backend else blank_values, program)

        def fails(candidate: Subprogram) -> bool:
            attempt = partial(self._extracted, candidate, values_of, explain=bool(symptom.operators))
            share = len(candidate.nodes) / _size(program)
            return bool(candidate.outputs) and self._same(attempt, symptom, share)

        with self._step("nodes", str(_size(program))) as after:
            start = next(filter(fails, guesses(program, symptom)), None) or whole(program)
            least = part(program, minimized(start.nodes, lambda names: fails(part(program, names))))
            small = program
            # If no node can be removed, the failure may depend on mutations or on inputs that are returned unchanged.
            if len(least.nodes) < _size(program) or fails(least):
                outputs = minimized(
                    least.outputs, lambda names: fails(dataclasses.replace(least, outputs=tuple(names)))
                )
                small = dataclasses.replace(least, outputs=tuple(outputs)).extracted(values_of)
            after.append(str(_size(small)))
        return small

    def _extracted(self, candidate: Subprogram, values_of: ValuesOf, entering: Entering, *, explain: bool) -> None:
        self._lower(candidate.extracted(values_of), (), entering, explain=explain)

    def _plainer(self, program: ExportedProgram, symptom: Symptom) -> Listing | None:
        """Return ``program`` as simplified Python source; None if it has none, or does not fail in that form."""
        numbers = symptom.kind is Kind.MISMATCH
        try:
            listing = listed(program, numbers=numbers)
        except NotPythonError:
            return None

        def fails(candidate: Listing) -> bool:
            attempt = partial(self._built, candidate, explain=bool(symptom.operators))
            return self._same(attempt, symptom, share=0.0)

        with self._step("inputs", listing.signature) as after:
            failing = fails(listing)
            listing = simplified(listing, fails, numbers=numbers) if failing else listing
            after.append(listing.signature)
        return listing if failing else None

    def _built(self, listing: Listing, entering: Entering, *, explain: bool) -> None:
        model, inputs, dynamic_shapes = listing.built()
        self._lower(model, inputs, entering, explain=explain, dynamic_shapes=dynamic_shapes)

    def _case(self, program: Listing | ExportedProgram) -> Case | None:
        """Return the module that fails, reduced if a pass fails on it; None if no module is reached."""
        scratch = Scratch()
        symptom = self.trials.run(partial(self._recorded, program, scratch.path / "stage"))
        case = Case.read(scratch.path / "stage")
        if symptom is None or case is None or not case.pipeline:
            return case
        with self._step("operations of MLIR", str(operations_in(case.text))) as after:
            bare = dataclasses.replace(symptom, operators=())  # only the lowering of a program searches for them
            case = reduced_case(case, bare, self.trials, scratch.path)
            after.append(str(operations_in(case.text)))
        return case

    def _recorded(self, program: Listing | ExportedProgram, path: Path, entering: Entering) -> None:
        """Lower ``program``, and write the input of each stage to ``path``."""

        def enter(record: StageRecord) -> None:
            entering(record.name)
            if case := Case.of(record):
                case.write(path)

        f, args, dynamic_shapes = program.built() if isinstance(program, Listing) else (program, (), None)
        self.lowering(f, args, dynamic_shapes, enter, explain=False)


def _size(program: ExportedProgram) -> int:
    return sum(node.op == "call_function" for node in program.graph.nodes)


_OPERATOR = re.compile(r"\b(aten|prims|\w+)\.(\w+)(?:\.(\w+))?")


def guesses(program: ExportedProgram, symptom: Symptom) -> Iterator[Subprogram]:
    """Yield parts suggested by the failure: nodes on a line and with an operator it names, then by either one alone.

    Each is tried with one node first, then with all.
    """
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    blamed = " ".join((*symptom.operators[:1], *symptom.reasons[:1]))
    named = {f"{match_[1]}.{match_[2]}" for match_ in _OPERATOR.finditer(blamed)}
    there = [node for node in nodes if set(read_frames(node.meta.get("stack_trace"))) & set(symptom.places)]
    called = [node for node in nodes if _name(node) in named]
    for match_ in ([node for node in there if node in called], called, there):
        for some in (match_[:1], match_):
            if some and len(some) < len(nodes):
                yield part(program, [node.name for node in some])


def _name(node: fx.Node) -> str:
    """Return ``aten.add`` for ``aten.add.Tensor``."""
    return str(node.target).rpartition(".")[0] if isinstance(node.target, OpOverload) else ""


def confirmed(script: Path, symptom: Symptom, seconds: float) -> bool:
    """Return whether ``script`` fails with ``symptom``."""
    try:
        ran = output_of([sys.executable, script], 60 + 2 * seconds)
    except subprocess.TimeoutExpired:
        return False
    output = normalized(ran.stdout + ran.stderr)
    match symptom.kind:
        case Kind.FAILED:
            telling = next(iter((*symptom.operators, *symptom.reasons)), "")  # the failure may have no message
        case Kind.CRASHED:
            telling = symptom.reasons[0].split()[0]
        case Kind.TIMED_OUT:
            telling = "had not ended"
        case Kind.MISMATCH:
            telling = "mismatch"
    return ran.returncode == 1 and telling in output
