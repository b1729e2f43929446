"""Runs of models on engines, in files and as tables in Markdown."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.running.compiling import Compiling
from benchmarks.running.roofline import Roofline
from benchmarks.running.saved_module import SavedModule
from fx_importer.benchmarking import Measurement
from fx_importer.benchmarking.measure import COLUMNS, cells, figure

FRONT_END_OF = {"iree": "iree-turbine", "xla": "jax"}
"""The native front end of each backend."""
RIVALS = ("onnxruntime", "openvino")
"""Runtimes that the JIT is compared with."""
TRAINING = "training"
"""The dtype of training steps, in float32."""
OURS = "the fastest of ours"
"""The name of the fastest engine that runs what we lower."""


@dataclass(frozen=True)
class Run:
    """A model on all engines."""

    model: str
    batch: int
    """0 of training steps: each model has its own."""
    dtype: str
    threads: int
    flops: int
    """Of the products and convolutions of a call; 0 of training steps."""
    weights: int
    """Bytes."""
    found: tuple[Measurement, ...]
    """Eager's is the first."""

    @property
    def setting(self) -> tuple[int, str, int]:
        return self.batch, self.dtype, self.threads

    @property
    def title(self) -> str:
        return f"{self.model}, {described(self.setting)}"

    def of(self, engine: str) -> Measurement | None:
        """Return the measurement of an engine, of the fastest output type of a backend, or of `OURS`, if it ran."""
        these = [
            each
            for each in self.found
            if engine in (each.engine, each.engine.partition(":")[0]) or (engine == OURS and ":" in each.engine)
        ]
        return min((each for each in these if not each.problem), key=lambda each: each.median, default=None)

    def speed(self, engine: str, beside: str = "eager") -> float | None:
        """Return the time of a call on ``beside``, divided by that on ``engine``; None if one of them did not run."""
        ours, other = self.of(engine), self.of(beside)
        return other.median / ours.median if ours and other else None

    def table(self) -> str:
        """Return all figures as a table."""
        return markdown(COLUMNS, (cells(each, self.found[0]) for each in self.found))


def described(setting: tuple[int, str, int]) -> str:
    """Return a setting in words."""
    batch, dtype, threads = setting
    return f"{f'batch {batch}, ' if batch else ''}{dtype}, {threads} thread{'s' if threads > 1 else ''}"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(headings)} |", "|---|" + "---:|" * (len(headings) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


@dataclass
class Figures:
    """What a benchmark measured."""

    machine: dict[str, str]
    rooflines: list[Roofline] = field(default_factory=list[Roofline])
    runs: list[Run] = field(default_factory=list[Run])
    compiling: list[Compiling] = field(default_factory=list[Compiling])
    saved: list[SavedModule] = field(default_factory=list[SavedModule])

    @classmethod
    def read(cls, path: Path) -> Figures:
        """Return what `write` wrote."""
        held = json.loads(path.read_text())
        runs = [Run(**{**each, "found": tuple(Measurement(**one) for one in each["found"])}) for each in held["runs"]]
        rooflines = [Roofline(**each) for each in held["rooflines"]]
        compiling = [Compiling(**each) for each in held["compiling"]]
        return cls(held["machine"], rooflines, runs, compiling, [SavedModule(**each) for each in held.get("saved", ())])

    def write(self, path: Path) -> None:
        """Write all figures as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))

    @property
    def models(self) -> list[Run]:
        """The runs of models that compute products."""
        return [each for each in self.runs if each.flops]

    @property
    def additions(self) -> list[Run]:
        """The runs of one addition."""
        return [each for each in self.runs if not each.flops and each.dtype != TRAINING]

    @property
    def training(self) -> list[Run]:
        """The runs of training steps."""
        return [each for each in self.runs if each.dtype == TRAINING]

    @property
    def of_machine(self) -> str:
        """The machine in a sentence."""
        return f"One run: {', '.join(f'{key} {value}' for key, value in self.machine.items())}."


def tables(figures: Figures) -> str:
    """Return the machine, and tables for each setting: speeds, calls of one addition, native front ends, loading."""
    parts = [figures.of_machine]
    parts += [
        f"With {each.threads} thread{'s' if each.threads > 1 else ''} it multiplies matrices at "
        + " and ".join(f"{rate / 1e9:.0f} GFLOP/s in {dtype}" for dtype, rate in each.flops.items())
        + f", and copies {each.copied / 1e9:.1f} GB/s."
        for each in figures.rooflines
    ]
    roofs = {each.threads: each for each in figures.rooflines}
    models = figures.models
    for setting in dict.fromkeys(each.setting for each in models):
        chosen = [each for each in models if each.setting == setting]
        parts += [f"**{described(setting)[0].upper()}{described(setting)[1:]}: speed relative to eager**"]
        # With more threads, engines that load at the same time take each other's processors.
        parts += [_speeds(chosen, roofs), _loading(chosen) if setting[2] == 1 else "", _front_ends(chosen)]
    if figures.saved:
        parts += ["**MB at the peak of calls: a saved module on the JIT, and eager**", _saved(figures.saved)]
    if figures.training:
        parts += ["**Training steps: speed relative to eager**", _training(figures.training)]
    if figures.additions:
        parts += ["**One addition: µs a call, median**", _additions(figures.additions)]
    return "\n\n".join(part for part in parts if part)


def engines_of(runs: Sequence[Run]) -> list[str]:
    """Return the names of the engines with figures."""
    return list(dict.fromkeys(each.engine for run in runs for each in run.found if not each.problem))


def _speeds(runs: Sequence[Run], roofs: Mapping[int, Roofline]) -> str:
    engines = [each for each in engines_of(runs) if each != "eager"]
    rows: list[list[str]] = []
    for run in runs:
        eager, roof = run.found[0], roofs[run.threads].seconds(run.flops, run.weights, run.dtype)
        rows.append(
            [run.model, _milliseconds(eager), f"{roof / eager.median:.0%}", *(_cell(run, each) for each in engines)]
        )
    rows.append(["geometric mean", "", "", *(mean_cell(run.speed(each) for run in runs) for each in engines)])
    return markdown(["model", "eager ms (quartiles)", "of roofline", *engines], rows)


def _milliseconds(each: Measurement) -> str:
    return f"{figure(1e3 * each.median)} ({'-'.join(figure(1e3 * quartile) for quartile in each.spread)})"


def _cell(run: Run, engine: str) -> str:
    found = run.of(engine)
    return f"{run.speed(engine):.2f}{'' if found.passed else ' !'}" if found else ""


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of at least one positive number."""
    return math.exp(statistics.fmean(map(math.log, values)))


def mean_cell(values: Iterable[float | None]) -> str:
    """Return the geometric mean of those that are there, and how many they are; nothing without any."""
    there = [each for each in values if each]
    return f"{geometric_mean(there):.2f} ({len(there)})" if there else ""


def _loading(runs: Sequence[Run]) -> str:
    engines = engines_of(runs)
    rows = [
        [
            run.model,
            *(
                f"{one.load + one.first_call:.1f} s, {one.call_memory / 2**20:.0f}" if (one := run.of(each)) else ""
                for each in engines
            ),
        ]
        for run in runs
    ]
    return "CPU time of loading and of the first call, and MB at the peak of later calls:\n\n" + markdown(
        ["model", *engines], rows
    )


def _front_ends(runs: Sequence[Run]) -> str:
    """Compare the speeds of backends with native front ends, Inductor and other runtimes."""
    fed = [each for each in engines_of(runs) if ":" in each]
    pairs = [(each, own) for backend, own in FRONT_END_OF.items() for each in fed if each.startswith(f"{backend}:")]
    pairs += [(OURS, "inductor"), *(("jit", rival) for rival in RIVALS)]
    pairs = [pair for pair in pairs if any(run.speed(*pair) for run in runs)]
    if not pairs:
        return ""
    rows = [
        [run.model, *(f"{speed:.2f}" if (speed := run.speed(*pair)) else "" for pair in pairs)]
        for run in runs
        if any(run.speed(*pair) for pair in pairs)
    ]
    rows.append(["geometric mean", *(mean_cell(run.speed(*pair) for run in runs) for pair in pairs)])
    headings = [f"{engine} / {own}" for engine, own in pairs]
    return "Speedup of each backend over its native front end, over Inductor and over other runtimes:\n\n" + markdown(
        ["model", *headings], rows
    )


def _saved(saved: Sequence[SavedModule]) -> str:
    rows = [
        [
            f"{each.model}, {described((each.batch, each.dtype, 1))}",
            *(f"{memory / 2**20:.0f}" for memory in (each.eager, each.saved)),
            f"{each.ratio:.2f}",
        ]
        for each in saved
    ]
    return markdown(["model", "eager", "saved module", "ratio"], rows)


def _training(runs: Sequence[Run]) -> str:
    engines = [each for each in engines_of(runs) if each != "eager"]
    rows = [
        [f"{run.model}, {described(run.setting)}", _milliseconds(run.found[0]), *(_cell(run, each) for each in engines)]
        for run in runs
    ]
    return markdown(["model", "eager ms (quartiles)", *engines], rows)


def _additions(runs: Sequence[Run]) -> str:
    engines = engines_of(runs)
    rows = [
        [described(run.setting), *(figure(1e6 * one.median) if (one := run.of(each)) else "" for each in engines)]
        for run in runs
    ]
    return markdown(["", *engines], rows)
