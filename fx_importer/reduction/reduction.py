"""What is left of a program that fails, and how it came to that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fx_importer.reduction.symptom import Symptom


@dataclass(frozen=True)
class Step:
    """One way in which the program was made smaller."""

    what: str
    before: str
    after: str
    trials: int
    """How many candidates were tried."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.what}: {self.before} → {self.after} ({_counted(self.trials, 'candidate')}, {self.seconds:.1f} s)"


@dataclass(frozen=True)
class Reduction:
    """A program that fails as the one it was cut from, and is as small as could be found."""

    symptom: Symptom
    """The failure, as the whole program had it."""
    steps: tuple[Step, ...]
    nodes: int
    """How many operators the program calls."""
    script: Path
    """A Python file that fails in the same way, and exits with 1 while it does."""
    module: Path | None
    """MLIR's text, of what fails or is run; None where the failure comes before there is a module."""
    pipeline: str
    """The pass that fails on ``module``, in MLIR's syntax; empty where none does."""
    confirmed: bool
    """Whether the script was run, and failed in the same way."""

    @property
    def directory(self) -> Path:
        return self.script.parent

    def moved_to(self, directory: Path) -> Reduction:
        """Return the same, of files that were moved to ``directory``."""
        module = self.module and directory / self.module.name
        return replace(self, script=directory / self.script.name, module=module)

    @property
    def outcome(self) -> str:
        """What is left, in a sentence or two."""
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
