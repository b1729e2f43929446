"""Measure a model on several engines that take turns, each in its own process; result tables, and recommendations."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from rich import box
from rich.table import Table

from fx_importer.benchmarking.engine_process import Load, Loading, Turn
from fx_importer.benchmarking.engines import Candidate, effort_to_install
from fx_importer.diagnostics.progress import counted
from fx_importer.engines.device_names import CPU
from fx_importer.errors import UsageError
from fx_importer.options import Limits
from fx_importer.process.scratch import Scratch
from fx_importer.process.worker import Child

_CLOSE = 0.97
"""An engine with at least this share of the best speed is recommended instead if it needs less installed."""


@dataclass(frozen=True)
class Measurement:
    """Times in seconds, memory in bytes."""

    engine: str
    """The engine's name; its output type follows a colon."""
    problem: str = ""
    """The reason for missing figures."""
    load: float = 0.0
    """Time before the first call: export, lowering and compilation, as far as the engine does them up front."""
    first_call: float = 0.0
    calls: tuple[float, ...] = ()
    """Time per call, one entry per turn."""
    memory: int = 0
    """Peak memory up to the end of the first call, plus the peak of the largest child process."""
    call_memory: int = 0
    """Peak memory of later calls."""
    difference: float = 0.0
    """Maximum difference from eager, relative to the largest magnitude of eager's tensor."""
    passed: bool = True
    """Whether all results are within tolerance."""

    @property
    def median(self) -> float:
        return statistics.median(self.calls)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles."""
        return quartiles(self.calls)


def quartiles(times: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile of at least one time."""
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, high


COLUMNS = ("engine", "load s", "first call s", "median ms", "quartiles", "speed", "load MB", "call MB", "difference")


def cells(measurement: Measurement, eager: Measurement) -> list[str]:
    """Return the cells of `COLUMNS`. The speed is eager's median divided by the engine's."""
    if measurement.problem:
        return [measurement.engine, *[""] * (len(COLUMNS) - 1)]
    low, high = (figure(1e3 * value) for value in measurement.spread)
    return [
        measurement.engine,
        f"{measurement.load:.2f}",
        f"{measurement.first_call:.2f}",
        figure(1e3 * measurement.median),
        f"{low}-{high}",
        f"{eager.median / measurement.median:.2f}",
        f"{measurement.memory / 2**20:.0f}",
        f"{measurement.call_memory / 2**20:.0f}",
        f"{measurement.difference:.0e}" + ("" if measurement.passed else " !"),
    ]


def figure(value: float) -> str:
    """Format a number with at least three significant digits."""
    return f"{value:#.3g}".rstrip(".") if value < 100 else f"{value:.0f}"


def table(measurements: Sequence[Measurement]) -> Table:
    """Return a `rich` table of measurements. The first measurement is eager's."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in COLUMNS:
        result.add_column(heading, no_wrap=True, justify="left" if heading == COLUMNS[0] else "right")
    for measurement in measurements:
        if not measurement.problem:
            result.add_row(*cells(measurement, measurements[0]))
    return result


def remarks(measurements: Sequence[Measurement]) -> list[str]:
    """Return a line per problem with its engines, and a line per engine whose results are out of tolerance."""
    problems = dict.fromkeys(measurement.problem for measurement in measurements if measurement.problem)
    lines = [
        f"{', '.join(measurement.engine for measurement in measurements if measurement.problem == problem)}: {problem}"
        for problem in problems
    ]
    lines += [
        f"{measurement.engine}: its results are out of tolerance (!)"
        for measurement in measurements
        if not measurement.passed
    ]
    return lines


def recommendation(measurements: Sequence[Measurement]) -> str:
    """Return a sentence that recommends an engine. Engines whose results are out of tolerance are excluded."""
    eager = measurements[0]
    ran = [measurement for measurement in measurements if not measurement.problem and measurement.passed]
    best = min(ran, key=lambda measurement: measurement.median)
    if best is eager:
        return "Recommended: eager PyTorch; no engine is faster."
    close = [measurement for measurement in ran if best.median >= _CLOSE * measurement.median]
    chosen = min(close, key=lambda measurement: effort_to_install(measurement.engine))
    if chosen is eager:
        speed = eager.median / best.median
        return f"Recommended: eager PyTorch; the fastest engine, {best.engine}, is only {speed:.2f}x eager."
    gained = eager.median - chosen.median
    cost = chosen.load + chosen.first_call - eager.load - eager.first_call
    speed, calls = eager.median / chosen.median, max(cost, 0.0) / gained
    return f"Recommended: {chosen.engine}, {speed:.2f}x eager (the compile time pays off after {calls:,.0f} calls)."


_TURN = 0.05
"""Minimum seconds of a turn; short calls are repeated to fill it."""
_MOST = 10_000
"""Maximum calls in a turn."""
_FEWEST = 3
"""Minimum turns before ``seconds`` applies, unless a single turn takes that long; see `measure`."""
_ENOUGH = 5
"""Turns after which an engine whose times are close gets no more."""
_WARM = 1.0
"""Calls that take longer than this many seconds get no warm-up call before a turn."""


def measure(
    load: Load,
    engines: Sequence[Candidate],
    threads: int,
    turns: int,
    limits: Limits,
    *,
    seconds: float = math.inf,
    close: float = 0.0,
    loading_at_once: int = 1,
    device: str = CPU,
) -> list[Measurement]:
    """Return one measurement per engine. The first of ``engines`` is eager.

    All processes are alive at the same time and only one works at a time, so that background load affects all engines
    alike. If an engine fails, or loads longer than ``limits``, its measurement reports the problem.

    Args:
        load: returns the model and its inputs; called in each process.
        engines: engines to measure.
        threads: threads per engine.
        turns: maximum turns per engine.
        limits: limits of one request to an engine.
        seconds: once its calls have taken this long together, an engine gets at most `_FEWEST` turns; one where a call
            takes longer.
        close: an engine with a relative difference of quartiles of at most this much gets no more than `_ENOUGH` turns.
        loading_at_once: how many engines load concurrently; with one thread, each uses its own processor.
        device: where the model and its inputs are.

    Raises:
        UsageError: if the machine has fewer processors than ``threads``; or if the model cannot be loaded, or does not
            run in eager PyTorch.
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= threads <= there:
        raise UsageError(f"{threads} threads: this process may use {there} processors, so 1 to {there} are accepted")
    scratch = Scratch()
    results = scratch.path / "results"
    runs = [_Run(engine) for engine in engines]
    first, *others = (
        partial(run.start, Loading(load, run.engine, threads, i % loading_at_once, results, device), limits)
        for i, run in enumerate(runs)
    )
    first()  # the others compare their results with eager's
    if runs[0].problem:
        raise UsageError(f"the model does not load and run in eager PyTorch: {runs[0].problem}")
    with ThreadPoolExecutor(loading_at_once) as pool:
        for started in counted([pool.submit(other) for other in others], "engines"):
            started.result()
    for run in runs:
        run.choose_calls(limits)
    for _ in counted(range(turns), "turns"):
        for run in runs:
            if not run.is_enough(seconds, close):
                run.turn(limits)
    return [run.measurement() for run in runs]


@dataclass
class _Run:
    """One engine in its process."""

    engine: Candidate
    child: Child | None = None
    problem: str = ""
    measured: dict[str, float] = field(default_factory=dict[str, float])
    calls: list[float] = field(default_factory=list[float])
    each: int = 1
    """Calls per turn."""
    warm_up: bool = False
    """Whether a turn starts with an untimed call."""

    def is_enough(self, seconds: float, close: float) -> bool:
        """Return whether the engine needs no more turns; see `measure`."""
        turns, spent = len(self.calls), sum(self.calls) * self.each
        if turns >= _ENOUGH:
            low, high = quartiles(self.calls)
            if high - low <= close * low:
                return True
        return spent >= seconds and (turns >= _FEWEST or spent >= turns * seconds > 0)

    def start(self, loading: Loading, limits: Limits) -> None:
        try:
            self.engine.check()
            self.child = Child("fx_importer.benchmarking.engine_process:Session")
            loaded = self.child.ask(self.engine.name, loading, limits)
            self.measured = vars(loaded)
        except Exception as error:  # models and engines raise errors of any kind
            self._failed(error)

    def choose_calls(self, limits: Limits) -> None:
        """Choose the calls per turn. No other engine may run meanwhile, or slow calls would make turns too short."""
        for _ in range(2):  # the second time it is warm
            if (seconds := self._ask_turn(limits)) is None:
                return
            self.each = min(max(math.ceil(_TURN / max(seconds, 1e-9)), 1), _MOST)
            self.warm_up = seconds <= _WARM
            if not self.warm_up:
                return

    def turn(self, limits: Limits) -> None:
        if (seconds := self._ask_turn(limits)) is not None:
            self.calls.append(seconds)

    def _ask_turn(self, limits: Limits) -> float | None:
        """Return the seconds of a call in a turn; None if the engine has failed."""
        if self.child is None:
            return None
        try:
            seconds, memory = self.child.ask(self.engine.name, Turn(self.each, self.warm_up), limits)
        except Exception as error:  # models and engines raise errors of any kind
            self._failed(error)
            return None
        self.measured["call_memory"] = memory
        return seconds

    def _failed(self, error: Exception) -> None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self.problem = ": ".join(lines[:2]) or type(error).__name__
        self.child = None  # its process ends

    def measurement(self) -> Measurement:
        if self.problem:
            return Measurement(self.engine.name, problem=self.problem)
        return Measurement(self.engine.name, calls=tuple(self.calls), **self.measured)  # pyright: ignore[reportArgumentType]
