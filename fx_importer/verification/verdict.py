"""What a verification found: a line per output, and whether all is well."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fx_importer.errors import FxImporterError
from fx_importer.output_types import OutputType
from fx_importer.verification.comparison import Comparison


class Status(Enum):
    """How a run on a backend ended."""

    PASSED = "passed"
    MISMATCH = "mismatch"
    """It ran, and an output is out of tolerance."""
    FAILED = "failed"
    """It could not be compiled, or stopped: an exception."""
    CRASHED = "crashed"
    """It ended its process."""
    REFUSED = "refused"
    """The backend does not take such a module: another dialect, a dynamic shape, a dtype."""
    NOT_INSTALLED = "not installed"


WIDTH = 160
"""Of the table at most, in characters; a terminal wraps what is wider than it."""

_EXCUSED = (Status.REFUSED, Status.NOT_INSTALLED)


class MismatchError(FxImporterError):
    """A verification did not pass. ``verdict`` has all that it found."""

    def __init__(self, verdict: Verdict):
        self.verdict = verdict
        super().__init__(f"the program does not do what eager PyTorch does:\n{verdict}")


@dataclass(frozen=True)
class OutputCheck:
    """One output, beside eager's."""

    name: str
    """Its path, ``output['logits']``; or what is new after the call: ``state 'cache'``, ``input 'x'``."""
    comparison: Comparison


@dataclass(frozen=True)
class Check:
    """One call of one function on one backend."""

    function: str
    inputs: int
    """Which input set, from 0."""
    backend: str
    status: Status
    outputs: tuple[OutputCheck, ...] = ()
    reason: str = ""
    """Why it did not get as far as outputs."""
    signal: str | None = None
    """Of what crashed: ``"SIGABRT"``; None where it ended with an exit code."""
    seconds: float = 0.0
    """Of the call; compilation is not in it."""
    required: bool = True
    """Whether the verdict depends on it even if the backend is not installed or refuses the module: it was asked for by
    name, or is the output type's own."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


@dataclass(frozen=True)
class Verdict:
    """All that was run. True where it passed; ``print`` shows a table."""

    output_type: OutputType
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed. Those that nobody asked for may be refused or not installed."""
        return all(each.passed or (not each.required and each.status in _EXCUSED) for each in self.checks)

    def __bool__(self) -> bool:
        return self.passed

    def raise_if_failed(self) -> None:
        """Raise `MismatchError`, with the table, unless all passed."""
        if not self.passed:
            raise MismatchError(self)

    def __str__(self) -> str:
        return as_text(self.table(), self.remarks())

    def table(self) -> Table:
        """Return the table for `rich`, which colours it on a terminal. None and strings have a row only if wrong."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("backend", "call", "output", "type"):
            table.add_column(heading, no_wrap=True)
        for heading in ("absolute", "relative", "ulp", "wrong"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        several = len({(each.function, each.inputs) for each in self.checks}) > 1
        for check in self.checks:
            call = f"{check.function}[{check.inputs}]" if several else check.function
            for row in _rows(check):
                style = "" if row[-1] == Status.PASSED.value else "yellow" if not check.required else "bold red"
                table.add_row(*(Text(cell) for cell in (check.backend, call, *row[:-1])), Text(row[-1], style))
        return table

    def remarks(self) -> list[str]:
        """Return a line for each thing that went wrong, and how to find out more."""
        found: list[str] = []
        for check in self.checks:
            if check.reason:
                found.append(f"{check.backend} {check.status.value}: {check.reason}")
            found += [
                f"{check.backend}, {each.name}: {each.comparison}"
                for each in check.outputs
                if not each.comparison.passed
            ]
        lines = list(dict.fromkeys(found))
        if wrong := next((each for each in self.checks if each.status is Status.MISMATCH), None):
            lines.append(f"lowered.bisect(..., backend='{wrong.backend}') finds the operation that differs first")
        return lines


def _rows(check: Check) -> Iterator[tuple[str, ...]]:
    if not check.outputs:
        yield "", "", "", "", "", "", check.status.value
    for each in check.outputs:
        found = each.comparison
        if found.passed and found.dtype in ("NoneType", "str"):
            continue
        shape = "x".join(map(str, found.shape))
        figures = (found.max_absolute, found.max_relative, found.max_ulp)
        yield (
            each.name,
            f"{found.dtype}[{shape}]",
            *(f"{figure:.1e}" if figure else "0" for figure in figures),
            f"{found.out_of_tolerance:,}/{found.elements:,}",
            (Status.PASSED if found.passed else Status.MISMATCH).value,
        )


def as_text(table: Table, remarks: Iterable[str], width: int = WIDTH) -> str:
    """Return ``table`` without colours, ``width`` characters wide at most, and ``remarks`` below it."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, legacy_windows=False).print(table)
    return "\n".join([*filter(None, (line.rstrip() for line in file.getvalue().splitlines())), *remarks])
