"""The result of a reduction, its steps, and its Markdown page for a bug report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fx_importer.reduction.pass_reduction import Case
from fx_importer.reduction.symptom import Symptom


@dataclass(frozen=True)
class Step:
    """One step of the reduction."""

    what: str
    before: str
    after: str
    trials: int
    """Number of candidates tried."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.what}: {self.before} → {self.after} ({_counted(self.trials, 'candidate')}, {self.seconds:.1f} s)"


@dataclass(frozen=True)
class Reduction:
    """The smallest program found that fails in the same way as the original."""

    symptom: Symptom
    """The failure of the whole program."""
    steps: tuple[Step, ...]
    nodes: int
    """Number of operators that the program calls."""
    script: Path
    """A Python file that fails in the same way, and exits with 1 while it does."""
    module: Path | None
    """The module that fails or is run, as MLIR text; None if the failure occurs before there is a module."""
    pipeline: str
    """The pass that fails on ``module``, in MLIR's syntax; empty if no pass fails."""
    confirmed: bool
    """Whether the script was run and failed in the same way."""

    @property
    def directory(self) -> Path:
        return self.script.parent

    def moved_to(self, directory: Path) -> Reduction:
        """Return the reduction with its files in ``directory``, where they were moved."""
        module = self.module and directory / self.module.name
        return replace(self, script=directory / self.script.name, module=module)

    @property
    def outcome(self) -> str:
        """A summary of the result in one or two sentences."""
        lines = [f"{self.script} has {_counted(self.nodes, 'operator')}, and exits with 1 while it fails"]
        if not self.confirmed:
            lines[-1] += "; but it did not when it was run"
        if self.module:
            lines.append(f"{self.module} is " + (f"what {self.pipeline} fails on" if self.pipeline else "its module"))
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([str(self.symptom), *map(str, self.steps), self.outcome])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def page(symptom: Symptom, steps: Sequence[Step], script: str, case: Case | None, *, confirmed: bool) -> str:
    """Return the page in Markdown."""
    lines = [f"# {_heading(symptom)}", "", "```text", symptom.message.strip(), "```", "", "## Python", ""]
    if not confirmed:
        lines += ["This was run, and did not fail in this way: the failure depends on more than this program.", ""]
    lines += ["```python", script.rstrip(), "```", ""]
    if case:
        lines += ["## MLIR", ""]
        if case.pipeline:
            lines += [f"`{replay(case)}` fails on it:", ""]
        lines += ["```mlir", case.text.rstrip(), "```", ""]
    lines += ["## How it came about", "", "| | before | after | candidates | seconds |", "|---|---|---|---|---|"]
    lines += [f"| {s.what} | {s.before} | {s.after} | {s.trials} | {s.seconds:.1f} |" for s in steps]
    return "\n".join([*lines, ""])


def _heading(symptom: Symptom) -> str:
    return str(symptom).partition("\n")[0][:120]


def replay(case: Case) -> str:
    """Return the command that fails on ``reduced.mlir``."""
    return shlex.join(["python", "-m", "fx_importer.pipelines.replay", "reduced.mlir", case.pipeline])
