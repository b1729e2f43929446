"""Tables that the demo prints."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from fx_importer.engines.engine_table import REFERENCE_ENGINE
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations
from fx_importer.output_types import OutputType
from fx_importer.results.lowered import Lowered

MOST_FREQUENT = 2
PAIRS = 5


def modules(lowered: Mapping[OutputType, Lowered], files: Mapping[OutputType, Path]) -> Table:
    """Return a row per output type: seconds of the lowering, operations, and the size of its file."""
    right = ("seconds", "ops", "MB")
    table = _table("Modules", "output type", "seconds", "ops", "MB", "most frequent", right=right)
    for output_type, result in lowered.items():
        seconds = sum(record.seconds for record in result.trace.stages)
        counts = count_ops(result.module)
        size = files[output_type].stat().st_size / 1e6
        frequent = ", ".join(f"{name} {count}" for name, count in counts.most_common(MOST_FREQUENT))
        table.add_row(output_type.value, f"{seconds:.1f}", f"{counts.total():,}", f"{size:.1f}", frequent)
    return table


def count_ops(module: ir.Module) -> Counter[str]:
    """Return the number of operations in ``module`` by name, including nested ones.

    Modules, functions and terminators are not counted.
    """
    counts = Counter(op.name for op in operations(module.operation))
    return Counter(
        {name: n for name, n in counts.items() if not name.endswith((".module", ".func", ".return", ".yield"))}
    )


def similarities(sentences: Sequence[str], ours: Sequence[float], eager: Sequence[float]) -> Table:
    """Return the `PAIRS` most similar pairs of sentences, with their cosine similarities."""
    columns = "MLIR JIT", REFERENCE_ENGINE
    table = _table("Most similar sentences, by the cosine", "sentence", "sentence", *columns, right=columns)
    rows = zip(itertools.combinations(sentences, 2), ours, eager, strict=True)
    for (a, b), mine, theirs in sorted(rows, key=lambda row: -row[1])[:PAIRS]:
        table.add_row(a, b, f"{mine:.6f}", f"{theirs:.6f}")
    return table


def _table(title: str, *columns: str, right: Sequence[str]) -> Table:
    """Return an empty table, whose columns ``right`` are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table
