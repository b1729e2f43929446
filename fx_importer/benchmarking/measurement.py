"""The measurement of a model on one engine, result tables, and recommendations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from fx_importer.benchmarking.engines import effort_to_install

_CLOSE = 0.97
"""An engine with at least this share of the best speed is recommended instead if it needs less installed."""


@dataclass(frozen=True)
class Measurement:
    """Times in seconds, memory in bytes."""

    engine: str
    """The engine's name; its output type follows a colon."""
    problem: str = ""
    """Why there are no figures."""
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


def cells(each: Measurement, eager: Measurement) -> list[str]:
    """Return the cells of `COLUMNS`. The speed is eager's median divided by the engine's."""
    if each.problem:
        return [each.engine, *[""] * (len(COLUMNS) - 1)]
    low, high = (figure(1e3 * value) for value in each.spread)
    return [
        each.engine,
        f"{each.load:.2f}",
        f"{each.first_call:.2f}",
        figure(1e3 * each.median),
        f"{low}-{high}",
        f"{eager.median / each.median:.2f}",
        f"{each.memory / 2**20:.0f}",
        f"{each.call_memory / 2**20:.0f}",
        f"{each.difference:.0e}" + ("" if each.passed else " !"),
    ]


def figure(value: float) -> str:
    """Format a number with at least three significant digits."""
    return f"{value:#.3g}".rstrip(".") if value < 100 else f"{value:.0f}"


def table(found: Sequence[Measurement]) -> Table:
    """Return a `rich` table of measurements. The first measurement is eager's."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in COLUMNS:
        result.add_column(heading, no_wrap=True, justify="left" if heading == COLUMNS[0] else "right")
    for each in found:
        if not each.problem:
            result.add_row(*cells(each, found[0]))
    return result


def remarks(found: Sequence[Measurement]) -> list[str]:
    """Return a line per problem with its engines, and a line per engine whose results are out of tolerance."""
    problems = dict.fromkeys(each.problem for each in found if each.problem)
    lines = [
        f"{', '.join(each.engine for each in found if each.problem == problem)}: {problem}" for problem in problems
    ]
    lines += [f"{each.engine}: its results are out of tolerance (!)" for each in found if not each.passed]
    return lines


def recommendation(found: Sequence[Measurement]) -> str:
    """Return a sentence that recommends an engine. Engines whose results are out of tolerance are excluded."""
    eager = found[0]
    ran = [each for each in found if not each.problem and each.passed]
    best = min(ran, key=lambda each: each.median)
    if best is eager:
        return "Stay with eager PyTorch: no engine is faster."
    close = [each for each in ran if best.median >= _CLOSE * each.median]
    chosen = min(close, key=lambda each: effort_to_install(each.engine))
    if chosen is eager:
        return (
            f"Stay with eager PyTorch: the fastest, {best.engine}, is {eager.median / best.median:.2f} times as fast."
        )
    sentence = f"Take {chosen.engine}: {eager.median / chosen.median:.2f} times as fast as eager"
    gained = eager.median - chosen.median
    cost = chosen.load + chosen.first_call - eager.load - eager.first_call
    return f"{sentence}, which pays for loading it after {max(cost, 0.0) / gained:,.0f} calls."
