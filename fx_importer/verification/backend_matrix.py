"""Table of the results of one program for every output type and backend."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fx_importer.engines import all_engines
from fx_importer.output_types import OutputType
from fx_importer.verification.verdict import Check, Status, Verdict, as_text


@dataclass(frozen=True)
class Row:
    """Results of one output type."""

    output_type: OutputType
    verdict: Verdict | None
    """None if the lowering failed."""
    problem: str = ""
    """Why the lowering failed."""
    signal: str | None = None
    """The signal that ended the lowering process, if one did."""
    backends: tuple[str, ...] = ()
    """The backends that would have run the module, if the lowering failed."""

    def cells(self) -> dict[str, tuple[str, float | None]]:
        """Return the status of the worst check and the largest error for each backend that runs the output type.

        Errors are absolute, divided by the largest magnitude of eager's tensor; None without results.
        """
        if self.verdict is None:
            return dict.fromkeys(self.backends, ("crashed" if self.signal else "not lowered", None))
        checks_by_backend: dict[str, list[Check]] = {}
        for check in self.verdict.checks:
            checks_by_backend.setdefault(check.backend, []).append(check)
        return {name: (_worst(checks).value, _error(checks)) for name, checks in checks_by_backend.items()}

    @property
    def passed(self) -> bool:
        """Whether it lowered, and passed on all installed backends that support it."""
        fine = (Status.PASSED.value, Status.UNSUPPORTED.value, Status.NOT_INSTALLED.value)
        return self.verdict is not None and all(status in fine for status, _ in self.cells().values())


_SEVERITY = (Status.PASSED, Status.NOT_INSTALLED, Status.UNSUPPORTED, Status.MISMATCH, Status.FAILED, Status.CRASHED)


def _worst(checks: list[Check]) -> Status:
    return max((check.status for check in checks), key=_SEVERITY.index)


def _error(checks: list[Check]) -> float | None:
    compared = [output.comparison for check in checks for output in check.outputs if not output.comparison.problem]
    return max((comparison.max_absolute / (comparison.magnitude or 1.0) for comparison in compared), default=None)


@dataclass(frozen=True)
class Matrix:
    """Results by output type. ``print`` shows a table and a line for each problem."""

    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)

    def table(self) -> Table:
        """Return a `rich` table with a column for each backend that runs any of the output types."""
        names = [name for name in all_engines() if any(name in row.cells() for row in self.rows)]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("output type", *names):
            table.add_column(heading, no_wrap=True)
        for row in self.rows:
            cells = row.cells()
            texts = [_text(*cells[name]) if name in cells else Text("-", "dim") for name in names]
            table.add_row(Text(row.output_type.value), *texts)
        return table

    def remarks(self) -> list[str]:
        """Return a line for each problem."""
        texts: list[str] = []
        for row in self.rows:
            lines = [f"not lowered: {row.problem}"] if row.verdict is None else row.verdict.remarks()
            texts += [f"{row.output_type.value}, {line}" for line in lines]
        return texts

    def __str__(self) -> str:
        return as_text(self.table(), self.remarks())

    def to_json(self) -> str:
        """Return all cells and problems as JSON."""
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            cells = {name: {"status": status, "error": error} for name, (status, error) in row.cells().items()}
            remarks = [row.problem] if row.verdict is None else row.verdict.remarks()
            rows.append({"output_type": row.output_type.value, "backends": cells, "remarks": remarks})
        return json.dumps(rows, indent=1)


def _text(status: str, error: float | None) -> Text:
    style = {"passed": "green", "unsupported": "yellow", "not installed": "yellow"}.get(status, "bold red")
    return Text(status if error is None else f"{status} {error:.1e}" if error else f"{status} 0", style)
