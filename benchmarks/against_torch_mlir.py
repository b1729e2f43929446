"""Measure `torch_mlir.fx.export_and_import` and `fx_importer.export_and_import` on the same exported programs.

Each program is exported and saved once, or made anew where it is large. Every measured run has a process of its own, so
that neither side's memory or caches reach the other, and the sides take turns. docs/measurements/lowering.md
says how to read the figures.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout need not be installed to be measured

from benchmarks.comparison.cases import CASES, MADE, Case
from benchmarks.comparison.limited import GIGA, ChildError, run_python
from benchmarks.comparison.sides import SIDES
from benchmarks.comparison.summary import Measurement, Result
from benchmarks.comparison.tables import tables

ROOT = Path(__file__).resolve().parent.parent
PEER, OURS = SIDES
PROGRESS = Console(stderr=True)


@dataclass(frozen=True)
class Limits:
    """Limits of one run, and of all runs of a side on a case."""

    repetitions: int
    budget: float
    """CPU seconds after which a side is not run again on the same case."""
    memory: float
    """Bytes."""
    seconds: float


def measure(case: Case, program: str, limits: Limits) -> tuple[Result, Result]:
    """Run both sides on ``program`` of ``case`` in turn. A side that fails is not run again."""
    results = {side: Result(case, side) for side in SIDES if case.peer or side == OURS}
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "result.json")
        for _ in range(limits.repetitions):
            for side, result in results.items():
                if result.failure or sum(run.seconds for run in result.runs) > limits.budget:
                    continue
                try:
                    _child("measure", side, case.output_type, program, str(output), limits=limits)
                    run = Measurement(**json.loads(output.read_text()))
                    results[side] = replace(result, runs=(*result.runs, run))
                    outcome = f"{run.seconds:.2f} CPU s, {run.peak_bytes / 2**20:.0f} MB"
                except ChildError as error:
                    outcome = str(error)
                    results[side] = replace(result, failure=outcome)
                PROGRESS.print(f"{case.name}  {side}  {outcome}", highlight=False, soft_wrap=True)
    return results.get(PEER, Result(case, PEER)), results[OURS]


def measure_all(cases: Sequence[Case], limits: Limits) -> Iterator[tuple[Result, Result]]:
    """Measure ``cases``. A program that several share is exported and saved once."""
    for name, shared in groupby(cases, lambda case: case.program):
        with tempfile.TemporaryDirectory() as directory:
            program = name if name in MADE else str(Path(directory, "program.pt2"))
            try:
                if name not in MADE:
                    _child("export", name, program, limits=limits)
            except ChildError as error:
                failure = f"not exported: {error}"
                yield from ((Result(case, PEER, (), failure), Result(case, OURS, (), failure)) for case in shared)
                continue
            for case in shared:
                yield measure(case, program, limits)


def _child(*arguments: str, limits: Limits) -> None:
    memory = min(limits.memory, 0.9 * _kilobytes("/proc/meminfo", "MemAvailable") * 1024)
    module = ("-m", "benchmarks.comparison.child")
    run_python([*module, *arguments], cwd=ROOT, memory_bytes=memory, seconds=limits.seconds)


def machine() -> dict[str, str]:
    """Return the properties of the machine and its software that figures depend on."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ": unknown processor")
    return {
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "date": date.today().isoformat(),
        "processor": f"{os.cpu_count()} x {model.split(': ')[1]}",
        "memory": f"{_kilobytes('/proc/meminfo', 'MemTotal') / 2**20:.0f} GB",
        "load": f"{os.getloadavg()[2]:.0f}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torch-mlir")},
    }


def _kilobytes(path: str, field: str) -> int:
    return next(int(line.split()[1]) for line in _lines(path) if line.startswith(field + ":"))


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def main(
    cases: Annotated[str, typer.Option(help="Which cases, separated by commas: " + ", ".join(CASES))] = "all",
    repetitions: Annotated[int, typer.Option(min=1, help="Runs of each side on each case.")] = 3,
    budget: Annotated[float, typer.Option(help="CPU seconds after which a side is not run again on a case.")] = 40,
    memory_limit: Annotated[float, typer.Option(help="GB that a run may hold.")] = 14,
    time_limit: Annotated[float, typer.Option(help="Seconds that a run may take.")] = 600,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write every measurement to this file.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    docs: Annotated[bool, typer.Option(help="Write tables and plots into the documentation.")] = False,
    given: Annotated[Path | None, typer.Option("--from", help="Measure nothing: read what --json wrote.")] = None,
) -> None:
    """Measure torch_mlir.fx and fx_importer on the same exported programs: CPU time and peak memory."""
    names = list(CASES) if cases == "all" else cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(CASES)}", param_hint="--cases")
    if given is not None:
        described, pairs = _read(given)
    else:
        limits = Limits(repetitions, budget, memory_limit * GIGA, time_limit)
        described, pairs = machine(), []
        for pair in measure_all([CASES[name] for name in names], limits):
            pairs.append(pair)
            if json_path is not None:  # after each, so that an interrupted run keeps its results
                results = [asdict(side) for each in pairs for side in each]
                json_path.write_text(json.dumps({"machine": described, "results": results}, indent=1))
    # In a pipe, tables are not truncated to the terminal's width.
    console = Console() if sys.stdout.isatty() and not markdown else Console(width=400)
    console.print(", ".join(f"{key} {value}" for key, value in described.items()), highlight=False)
    console.print(_report(pairs, console, markdown=markdown), markup=False, highlight=False, soft_wrap=True)
    if docs:
        from benchmarks.comparison import page, plots  # only here: plots need matplotlib, the extra bench

        plots.draw([side for pair in pairs for side in pair], ROOT / "docs" / "measurements")
        page.write(ROOT, pairs, described, _report(pairs, Console(width=400), markdown=True))


def _report(pairs: Sequence[tuple[Result, Result]], console: Console, *, markdown: bool) -> str:
    """Return the tables as text, and the cases that did not finish."""
    lines: list[str] = []
    for title, table in tables(pairs, markdown=markdown):
        with console.capture() as text:
            console.print(table)
        shown = (line.rstrip() for line in text.get().splitlines() if line.strip())
        lines += ["", f"**{title}**" if markdown else title, "", *shown]
    failed = [side for pair in pairs for side in pair if side.failure]
    if failed:
        lines += ["", "Did not finish:", "", *(f"- {each.case.name}, {each.side}: {each.failure}" for each in failed)]
    return "\n".join(lines)


def _read(path: Path) -> tuple[dict[str, str], list[tuple[Result, Result]]]:
    """Return what ``--json`` wrote."""
    held = json.loads(path.read_text())
    results = [
        replace(Result(**each), case=Case(**each["case"]), runs=tuple(Measurement(**run) for run in each["runs"]))
        for each in held["results"]
    ]
    return held["machine"], list(zip(results[::2], results[1::2], strict=True))


if __name__ == "__main__":
    typer.run(main)
