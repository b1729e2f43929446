"""The result of a reduction as a Markdown page for a bug report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fx_importer.reduction.pass_reduction import Case
from fx_importer.reduction.reduction import Step
from fx_importer.reduction.symptom import Symptom


def page(symptom: Symptom, steps: Sequence[Step], script: str, case: Case | None, *, confirmed: bool) -> str:
    """Return the page in Markdown."""
    lines = [f"# {_heading(symptom)}", "", "```text", symptom.message.strip(), "```", "", "## Python", ""]
    if not confirmed:
        lines += ["This was run, and did not fail in this way: beside it, other things matter here.", ""]
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
