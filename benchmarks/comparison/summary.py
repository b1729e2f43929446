"""Measurements, their medians, spread, and ratios."""

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
    """CPU seconds by stage; together, the run."""
    wall_seconds: float
    peak_bytes: int
    """The most memory that was in use at once, over what the process held before: libraries, program, weights."""
    weights_bytes: int
    operations: int
    """Operations in the module that came out."""

    @property
    def seconds(self) -> float:
        """CPU seconds of the whole run."""
        return sum(self.stages.values())

    @property
    def import_seconds_per_gb(self) -> float:
        """CPU seconds that the import stage takes for a GB (10⁹ bytes) of weights."""
        return self.stages["import"] * GIGA / self.weights_bytes

    @property
    def peak_over_weights(self) -> float:
        """Weights and peak together, as a multiple of the weights: 1 is the model's own memory and no more."""
        return 1 + self.peak_bytes / self.weights_bytes


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one quantity."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the least, the median and the greatest of ``values``."""
        known = sorted(values)
        return cls(known[0], median(known), known[-1])

    def __truediv__(self, other: Spread) -> Spread:
        """The ratio of the medians, and the least and greatest ratio that any two measurements give."""
        return Spread(self.low / other.high, self.middle / other.middle, self.high / other.low)


@dataclass(frozen=True)
class Result:
    """All runs of one side on one case, or why there is none."""

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
    """Return ``of / to``; None unless both were measured and ``to`` is more than nothing."""
    return of / to if of is not None and to is not None and to.low > 0 else None


@dataclass(frozen=True)
class Scaling:
    """What a node costs, in graphs of several sizes."""

    family: str
    output_type: str
    side: str
    microseconds: dict[int, float]
    """CPU time for each node, by how many there are: medians."""

    @property
    def growth(self) -> float:
        """The most that a node costs in any graph, over the least."""
        return max(self.microseconds.values()) / min(self.microseconds.values())

    @property
    def exponent(self) -> float:
        """The slope of the time over the nodes, both as logarithms: 1 where a node costs the same in all graphs."""
        points = [(math.log(n), math.log(n * each)) for n, each in self.microseconds.items()]
        return linear_regression(*zip(*points, strict=True)).slope


def scalings(results: Iterable[Result]) -> list[Scaling]:
    """Return what was measured of graphs of several sizes."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for each in results:
        if each.case.nodes and (total := each.spread(lambda run: run.seconds)):
            key = each.case.family, each.case.output_type, each.side
            found.setdefault(key, {})[each.case.nodes] = total.middle / each.case.nodes * 1e6
    return [Scaling(*key, costs) for key, costs in found.items() if len(costs) > 1]
