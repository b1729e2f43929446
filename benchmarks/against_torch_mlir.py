"""Measure `torch_mlir.fx.export_and_import` and `fx_importer.export_and_import` on the same exported programs.

Each program is exported and saved once. Every measured run loads it in a process of its own, so that neither side's
memory or caches reach the other, and the sides take turns. docs/performance.md says how to read the figures.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout need not be installed to be measured

from benchmarks.comparison.cases import CASES, Case
from benchmarks.comparison.limited import GIGA, ChildError, run_python
from benchmarks.comparison.sides import SIDES
from benchmarks.comparison.summary import Measurement, Result
from benchmarks.comparison.tables import tables

ROOT = Path(__file__).resolve().parent.parent
PEER, OURS = SIDES
PROGRESS = Console(stderr=True)


@dataclass(frozen=True)
class Limits:
    """What one run, and all runs of a side on a case, may take."""

    repetitions: int
    budget: float
    """CPU seconds after which a side is not run again on the same case."""
    memory: float
    """Bytes."""
    seconds: float


def measure(case: Case, limits: Limits) -> tuple[Result, Result]:
    """Run both sides on ``case``, taking turns. A side that fails is not run again on it."""
    with tempfile.TemporaryDirectory() as directory:
        program, output = Path(directory, "program.pt2"), Path(directory, "result.json")
        results = {side: Result(case.name, side, case.output_type, case.weights_only) for side in SIDES}
        try:
            _child("export", case.name, str(program), limits=limits)
        except ChildError as error:
            failure = f"not exported: {error}"
            return replace(results[PEER], failure=failure), replace(results[OURS], failure=failure)
        for _ in range(limits.repetitions):
            for side, result in results.items():
                if result.failure or sum(run.seconds for run in result.runs) > limits.budget:
                    continue
                try:
                    _child("measure", side, case.output_type, str(program), str(output), limits=limits)
                    run = Measurement(**json.loads(output.read_text()))
                    results[side] = replace(result, runs=(*result.runs, run))
                    outcome = f"{run.seconds:.2f} CPU s, {run.peak_bytes / 2**20:.0f} MB"
                except ChildError as error:
                    outcome = str(error)
                    results[side] = replace(result, failure=outcome)
                PROGRESS.print(f"{case.name}  {side}  {outcome}", highlight=False, soft_wrap=True)
    return results[PEER], results[OURS]


def _child(*arguments: str, limits: Limits) -> None:
    memory = min(limits.memory, 0.9 * _kilobytes("/proc/meminfo", "MemAvailable") * 1024)
    module = ("-m", "benchmarks.comparison.child")
    run_python([*module, *arguments], cwd=ROOT, memory_bytes=memory, seconds=limits.seconds)


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ": unknown processor")
    return {
        "date": date.today().isoformat(),
        "processor": f"{os.cpu_count()} x {model.split(': ')[1]}",
        "memory": f"{_kilobytes('/proc/meminfo', 'MemTotal') / 2**20:.0f} GB",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torch-mlir")},
    }


def _kilobytes(path: str, field: str) -> int:
    return next(int(line.split()[1]) for line in _lines(path) if line.startswith(field + ":"))


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def main(
    cases: Annotated[str, typer.Option(help="Which cases, separated by commas: " + ", ".join(CASES))] = "all",
    repetitions: Annotated[int, typer.Option(min=1, help="How often each side runs on each case.")] = 3,
    budget: Annotated[float, typer.Option(help="CPU seconds after which a side is not run again on a case.")] = 40,
    memory_limit: Annotated[float, typer.Option(help="GB that a run may hold.")] = 14,
    time_limit: Annotated[float, typer.Option(help="Seconds that a run may take.")] = 600,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write every measurement to this file.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
) -> None:
    """Measure torch_mlir.fx and fx_importer on the same exported programs: CPU time and peak memory."""
    names = list(CASES) if cases == "all" else cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(CASES)}", param_hint="--cases")
    limits = Limits(repetitions, budget, memory_limit * GIGA, time_limit)
    pairs = [measure(CASES[name], limits) for name in names]

    described = machine()
    if json_path is not None:
        results = [asdict(side) for pair in pairs for side in pair]
        json_path.write_text(json.dumps({"machine": described, "results": results}, indent=1))
    # Piped, a table is as wide as it needs to be.
    console = Console() if sys.stdout.isatty() and not markdown else Console(width=400)
    console.print(", ".join(f"{key} {value}" for key, value in described.items()), highlight=False)
    for title, table in tables(pairs, markdown=markdown):
        console.print(f"\n**{title}**\n" if markdown else f"\n[bold]{title}[/]", highlight=False)
        with console.capture() as text:
            console.print(table)
        print("\n".join(line.rstrip() for line in text.get().splitlines() if line.strip()))
    failed = [side for pair in pairs for side in pair if side.failure]
    if failed:
        console.print("\nDid not finish:\n")
    for side in failed:
        console.print(f"- {side.case}, {side.side}: {side.failure}", highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
