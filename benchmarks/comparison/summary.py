"""Measurements, their medians, ranges, and ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

from benchmarks.comparison.cases import Case

GIGA = 1e9


@dataclass(frozen=True)
class Measurement:
    """One run of one side on one case."""

    stages: dict[str, float]
    """CPU seconds by stage; their sum is the run's."""
    wall_seconds: float
    peak_bytes: int
    """Peak memory beyond what the process held before: libraries, program, weights."""
    weights_bytes: int
    operations: int
    """Number of operations in the resulting module."""

    @property
    def seconds(self) -> float:
        """CPU seconds of the whole run."""
        return sum(self.stages.values())

    @property
    def import_seconds_per_gb(self) -> float:
        """CPU seconds of the import stage per GB (10⁹ bytes) of weights."""
        return self.stages["import"] * GIGA / self.weights_bytes

    @property
    def peak_over_weights(self) -> float:
        """Weights and peak together, as a multiple of the weights: 1 is the model's own memory only."""
        return 1 + self.peak_bytes / self.weights_bytes


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one quantity."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the minimum, the median and the maximum of ``values``."""
        known = sorted(values)
        return cls(known[0], median(known), known[-1])

    def __truediv__(self, other: Spread) -> Spread:
        """The ratio of the medians, and the minimum and maximum ratio of any two measurements."""
        return Spread(self.low / other.high, self.middle / other.middle, self.high / other.low)


@dataclass(frozen=True)
class Result:
    """All runs of one side on one case, or the reason why there are none."""

    case: Case
    side: str
    runs: Sequence[Measurement] = ()
    failure: str = ""

    def spread(self, quantity: Callable[[Measurement], float]) -> Spread | None:
        """Return ``quantity`` over all runs; None where there is none."""
        return Spread.of(map(quantity, self.runs)) if self.runs else None

    def stage(self, name: str) -> Spread | None:
        """Return the CPU seconds of the stage ``name`` over all runs."""
        return self.spread(lambda run: run.stages[name])


def ratio(of: Spread | None, to: Spread | None) -> Spread | None:
    """Return ``of / to``; None unless both were measured and ``to`` is positive."""
    return of / to if of is not None and to is not None and to.low > 0 else None


@dataclass(frozen=True)
class Scaling:
    """Cost per node, in graphs of several sizes."""

    family: str
    output_type: str
    side: str
    microseconds: dict[int, float]
    """CPU time per node by number of nodes: medians."""

    @property
    def growth(self) -> float:
        """The maximum cost per node over the minimum."""
        return max(self.microseconds.values()) / min(self.microseconds.values())

    @property
    def exponent(self) -> float:
        """The slope of time over nodes in logarithms: 1 if the cost per node is constant."""
        points = [(math.log(n), math.log(n * each)) for n, each in self.microseconds.items()]
        return linear_regression(*zip(*points, strict=True)).slope


def scalings(results: Iterable[Result]) -> list[Scaling]:
    """Return the measurements of graphs of several sizes."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for each in results:
        if each.case.nodes and (total := each.spread(lambda run: run.seconds)):
            key = each.case.family, each.case.output_type, each.side
            found.setdefault(key, {})[each.case.nodes] = total.middle / each.case.nodes * 1e6
    return [Scaling(*key, costs) for key, costs in found.items() if len(costs) > 1]
