"""Reduction of a pass failure: the smallest module on which a single pass fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fx_importer.diagnostics.trace import StageRecord
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import Stage, run_stage
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.runner import single_passes
from fx_importer.reduction.ddmin import minimized
from fx_importer.reduction.module_slices import generic_text, operations_in, with_operations
from fx_importer.reduction.symptom import Symptom
from fx_importer.reduction.trials import Entering, Trials


@dataclass(frozen=True)
class Case:
    """A module, and the pass pipeline that fails on it."""

    text: str
    stage: str
    pipeline: str
    """In MLIR's syntax; empty if the failure is not in a pass."""

    @classmethod
    def of(cls, record: StageRecord) -> Case | None:
        """Return the module before a stage; None if there was none."""
        if record.snapshot is None or record.name == "importing":  # its module is still empty
            return None
        return cls(generic_text(record.snapshot), record.name, record.pipeline)

    @classmethod
    def read(cls, path: Path) -> Case | None:
        """Return the case that `write` wrote; None if there is none."""
        if not path.exists():
            return None
        stage, pipeline, text = path.read_text(encoding="utf-8").split("\n", 2)
        return cls(text, stage, pipeline)

    def write(self, path: Path) -> None:
        path.write_text("\n".join([self.stage, self.pipeline, self.text]), encoding="utf-8")

    def run(self, entering: Entering) -> None:
        """Run the passes. Raise `ir.MLIRError` if they fail."""
        self._run(self._parsed(), entering)

    def _parsed(self) -> ir.Module:
        load_dialects(context := new_context())
        return ir.Module.parse(self.text, context)

    def _run(self, module: ir.Module, entering: Entering) -> None:
        entering(self.stage)
        run_stage(Stage(self.stage, "", parse_steps(self.pipeline)), module)

    def run_one_by_one(self, path: Path, entering: Entering) -> None:
        """Run each pass alone, and write its input to ``path`` before it runs. Raise as `run` does."""
        module = self._parsed()
        for steps in single_passes(Stage(self.stage, "", parse_steps(self.pipeline))):
            alone = replace(
                self, text=generic_text(module.operation), pipeline=str(Stage(self.stage, "", tuple(steps)))
            )
            alone.write(path)
            alone._run(module, entering)


def reduced_case(case: Case, symptom: Symptom, trials: Trials, scratch: Path) -> Case:
    """Return the failing pass of ``case``, with as few operations as it fails on."""

    def fails(candidate: Case) -> bool:
        found = trials.run(candidate.run)
        return found is not None and found.is_same_as(symptom)

    path = scratch / "pass"
    trials.run(partial(case.run_one_by_one, path))
    one = Case.read(path)
    if one is not None and fails(one):
        case = one
    elif not fails(case):  # the failure depends on locations, which the text lacks
        return case
    return replace(case, text=_fewer(case.text, lambda text: fails(replace(case, text=text))))


def _fewer(text: str, fails: Callable[[str], bool]) -> str:
    total = range(operations_in(text))
    kept = minimized(total, lambda chosen: _holds(text, chosen, fails))
    return with_operations(text, kept) if _holds(text, kept, fails) else text


def _holds(text: str, kept: Sequence[int], fails: Callable[[str], bool]) -> bool:
    try:
        candidate = with_operations(text, kept)
    except ir.MLIRError:  # an operation that is only valid together with another
        return False
    return fails(candidate)
