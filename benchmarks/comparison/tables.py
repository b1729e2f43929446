"""The tables that the benchmark prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.box import MARKDOWN, SIMPLE_HEAD, Box
from rich.table import Table

from benchmarks.comparison.sides import STAGES
from benchmarks.comparison.summary import Measurement, Result, Scaling, Spread, ratio, scalings

MEBI = 2**20
Pair = tuple[Result, Result]
"""The same case on the peer's side and on ours."""


def tables(pairs: Sequence[Pair], *, markdown: bool) -> list[tuple[str, Table]]:
    """Return the tables, each with its title; tables without measurements are skipped."""
    box = MARKDOWN if markdown else SIMPLE_HEAD
    compared = [pair for pair in pairs if pair[0].case.peer]
    weights = [pair for pair in compared if pair[0].case.weights_only]
    scaled = scalings(result for pair in pairs for result in pair)
    made: list[tuple[str, Table]] = []
    if compared:
        made.append(("From the exported program to the module", _totals(compared, box)))
    if weights:
        made.append(("Importing weights", _weights(weights, box)))
    if scaled:
        made.append(("CPU time for each node, by how many there are", _scaling(scaled, box)))
    return [*made, ("CPU seconds by stage", _stages(pairs, box))]


def _totals(pairs: Sequence[Pair], box: Box) -> Table:
    table = _table(box, "case", "weights MB", *_columns("CPU s"), "of wall time", *_columns("peak MB"))
    for peer, ours in pairs:
        table.add_row(
            *(ours.case.name, _weights_size(peer, ours)),
            *_compared(peer, ours, _seconds),
            _compared(peer, ours, lambda run: run.wall_seconds)[2],
            *_compared(peer, ours, _peak_mebibytes),
        )
    return table


def _weights(pairs: Sequence[Pair], box: Box) -> Table:
    table = _table(box, "case", *_columns("import, CPU s per GB"), *_columns("memory / weights")[:2])
    for peer, ours in pairs:
        multiples = [_number(side, lambda run: run.peak_over_weights, 4) for side in (peer, ours)]
        table.add_row(ours.case.name, *_compared(peer, ours, lambda run: run.import_seconds_per_gb), *multiples)
    return table


def _stages(pairs: Sequence[Pair], box: Box) -> Table:
    table = _table(box, "case", "side", *STAGES, "total", "runs", "operations out")
    for result in (side for pair in pairs for side in pair if side.runs):
        times = [spread_text(result.stage(name), with_range=False) for name in STAGES]
        total = spread_text(result.spread(_seconds), with_range=False)
        table.add_row(
            result.case.name, result.side, *times, total, str(len(result.runs)), str(result.runs[-1].operations)
        )
    return table


def _scaling(scaled: Sequence[Scaling], box: Box) -> Table:
    sizes = sorted({size for each in scaled for size in each.microseconds})
    table = _table(box, "graph", "side", *(f"µs of {size}" for size in sizes), "most / least", "exponent")
    for each in scaled:
        costs = [short(each.microseconds[size]) if size in each.microseconds else "" for size in sizes]
        name = f"{each.family} → {each.output_type}"
        table.add_row(name, each.side, *costs, short(each.growth), short(each.exponent))
    return table


def _table(box: Box, *columns: str) -> Table:
    table = Table(box=box)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _columns(quantity: str) -> tuple[str, str, str]:
    """Return the headings over what `_compared` returns."""
    return f"{quantity}: torch_mlir.fx", "fx_importer", "ratio"


def _seconds(run: Measurement) -> float:
    return run.seconds


def _peak_mebibytes(run: Measurement) -> float:
    return run.peak_bytes / MEBI


def _compared(peer: Result, ours: Result, quantity: Callable[[Measurement], float]) -> tuple[str, str, str]:
    """Return the text of both sides' ``quantity`` and of the ratio between them."""
    shares = ratio(peer.spread(quantity), ours.spread(quantity))
    return _number(peer, quantity), _number(ours, quantity), spread_text(shares)


def _number(result: Result, quantity: Callable[[Measurement], float], digits: int = 3) -> str:
    return "did not finish" if result.failure else spread_text(result.spread(quantity), digits)


def _weights_size(*results: Result) -> str:
    sizes = [run.weights_bytes / MEBI for result in results for run in result.runs]
    return short(sizes[0]) if sizes else ""


def spread_text(spread: Spread | None, digits: int = 3, *, with_range: bool = True) -> str:
    """Return ``median (min-max)``, the range only if it shows; a dash for None."""
    if spread is None:
        return "—"
    low, middle, high = (short(value, digits) for value in (spread.low, spread.middle, spread.high))
    return middle if low == high or not with_range else f"{middle} ({low}-{high})"


def short(value: float, digits: int = 3) -> str:
    """Return ``value``, which is not negative, with that many significant digits and no exponent."""
    if value == 0:
        return "0"
    return f"{value:.{max(digits - 1 - math.floor(math.log10(value)), 0)}f}"
