"""Results of a verification: a table of checks by backend, call and output."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fx_importer.diagnostics.html import preformatted
from fx_importer.errors import FxImporterError, printable
from fx_importer.output_types import OutputType
from fx_importer.verification.comparison import Comparison

if TYPE_CHECKING:
    from fx_importer.verification.pass_bisection import WrongPass


class Status(Enum):
    """Result of a run on a backend."""

    PASSED = "passed"
    MISMATCH = "mismatch"
    """An output is out of tolerance."""
    FAILED = "failed"
    """Compilation or run raised an exception."""
    CRASHED = "crashed"
    """The process crashed."""
    UNSUPPORTED = "unsupported"
    """The backend does not support such a module: its dialect, a dynamic shape, a dtype."""
    NOT_INSTALLED = "not installed"


CAPTURE = "capture"
"""What takes the place of a backend in checks of the exported program against the model that it was exported from."""

WIDTH = 160
"""Largest width of the table in characters."""

_EXCUSED = (Status.UNSUPPORTED, Status.NOT_INSTALLED)


class MismatchError(FxImporterError):
    """A verification did not pass; see ``verdict``."""

    def __init__(self, verdict: Verdict):
        self.verdict = verdict
        super().__init__(f"the program does not match eager PyTorch:\n{verdict}")


@dataclass(frozen=True)
class OutputCheck:
    """Comparison of one output with eager's."""

    name: str
    """Path of the output, ``output['logits']``; or updated state or input: ``state 'cache'``, ``input 'x'``."""
    comparison: Comparison


@dataclass(frozen=True)
class Check:
    """One call of one function on one backend."""

    function: str
    inputs: int
    """Index of the input set."""
    backend: str
    status: Status
    outputs: tuple[OutputCheck, ...] = ()
    reason: str = ""
    """Why there are no outputs."""
    signal: str | None = None
    """Signal of a crash, ``"SIGABRT"``; None if the process ended with an exit code."""
    seconds: float = 0.0
    """Duration of the call, without compilation."""
    required: bool = True
    """Whether a backend that is not installed or does not support the module fails the verdict: it was requested by
    name, or is the output type's default."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    def with_outputs(self, more: tuple[OutputCheck, ...]) -> Check:
        """Return the check with further comparisons, which it must pass too; one that did not run has none."""
        if not self.outputs:
            return self
        wrong = not all(output.comparison.passed for output in more)
        return replace(self, outputs=(*self.outputs, *more), status=Status.MISMATCH if wrong else self.status)


@dataclass(frozen=True)
class Verdict:
    """Results of all checks. True if it passed; ``print`` shows a table."""

    output_type: OutputType
    checks: tuple[Check, ...]
    wrong_passes: tuple[WrongPass, ...] = ()
    """With ``bisect``: for each backend with a mismatch, the pass after which the numbers differ, if it was found."""
    reference: str = ""
    """Why the exported program is the reference in place of the model that was lowered; empty if the model is."""

    @property
    def passed(self) -> bool:
        """Whether every check passed. Backends that are not required may be unsupported or not installed."""
        return all(check.passed or (not check.required and check.status in _EXCUSED) for check in self.checks)

    def __bool__(self) -> bool:
        return self.passed

    def raise_if_failed(self) -> None:
        """Raise `MismatchError` unless all checks passed."""
        if not self.passed:
            raise MismatchError(self)

    def __repr__(self) -> str:
        backends = ", ".join(f"{name} {status}" for name, status in self._by_backend().items())
        return f"<Verdict {'passed' if self.passed else 'not passed'}, {self.output_type.value}: {backends}>"

    def __str__(self) -> str:
        return as_text(self.table(), self.remarks())

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def _by_backend(self) -> dict[str, str]:
        """Return the status of each backend: the first one that is not passed, if there is one."""
        statuses = dict.fromkeys((check.backend for check in self.checks), Status.PASSED.value)
        return statuses | {check.backend: check.status.value for check in reversed(self.checks) if not check.passed}

    def table(self) -> Table:
        """Return a `rich` table. None and strings have a row only if they differ."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("backend", "call", "output", "type"):
            table.add_column(heading, no_wrap=True)
        for heading in ("absolute", "relative", "ulp", "wrong"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        several = len({(check.function, check.inputs) for check in self.checks}) > 1
        for check in self.checks:
            call = f"{check.function}[{check.inputs}]" if several else check.function
            for row in _rows(check):
                style = "green" if row[-1] == Status.PASSED.value else "yellow" if not check.required else "bold red"
                cells = (printable(cell, newlines=True) for cell in (check.backend, call, *row[:-1]))
                table.add_row(*map(Text, cells), Text(row[-1], style))
        return table

    def remarks(self) -> list[str]:
        """Return a line for each problem, and how to bisect it."""
        texts: list[str] = [self.reference] if self.reference else []
        for check in self.checks:
            if check.reason:
                texts.append(f"{check.backend} {check.status.value}: {check.reason}")
            texts += [
                f"{check.backend}, {output.name}: {output.comparison}"
                for output in check.outputs
                if not output.comparison.passed
            ]
        lines = list(dict.fromkeys(texts))
        if any(check.backend == CAPTURE for check in self.checks):
            lines.append("torch.export captured another program: bisect compares with that, and not with the model")
        elif wrong := next((check for check in self.checks if check.status is Status.MISMATCH), None):
            lines += map(str, self.wrong_passes)
            lines.append(f"lowered.bisect(..., backend='{wrong.backend}') finds the first operation that differs")
        return lines


def _rows(check: Check) -> Iterator[tuple[str, ...]]:
    if not check.outputs:
        yield "", "", "", "", "", "", check.status.value
    for output in check.outputs:
        compared = output.comparison
        if compared.passed and compared.dtype in ("NoneType", "str"):
            continue
        shape = "x".join(map(str, compared.shape))
        figures = (compared.max_absolute, compared.max_relative, compared.max_ulp)
        yield (
            output.name,
            f"{compared.dtype}[{shape}]",
            *(f"{figure:.1e}" if figure else "0" for figure in figures),
            f"{compared.out_of_tolerance:,}/{compared.elements:,}",
            (Status.PASSED if compared.passed else Status.MISMATCH).value,
        )


def as_text(table: Table, remarks: Iterable[str], width: int = WIDTH) -> str:
    """Return ``table`` as text of at most ``width`` characters without colours, and ``remarks``; names are escaped."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, legacy_windows=False).print(table)
    lines = [*filter(None, (line.rstrip() for line in file.getvalue().splitlines())), *remarks]
    return printable("\n".join(lines))
