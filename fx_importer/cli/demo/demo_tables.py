"""Tables that the demo prints."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

from rich import box
from rich.table import Table

from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.engine_table import REFERENCE_ENGINE
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations
from fx_importer.output_types import OutputType

MOST_FREQUENT = 6


def stages(traces: Mapping[OutputType, Trace]) -> Table:
    """Return the duration of each stage in seconds, with a column per output type."""
    table = _table("Seconds per stage", "stage", *(output_type.value for output_type in traces))
    seconds = [{record.name: record.seconds for record in trace.stages} for trace in traces.values()]
    order: TopologicalSorter[str] = TopologicalSorter()
    for column in seconds:
        for before, after in itertools.pairwise(column):
            order.add(after, before)
    for name in order.static_order():
        table.add_row(name, *(f"{column[name]:.2f}" if name in column else "" for column in seconds))
    table.add_section()
    table.add_row("all", *(f"{sum(column.values()):.2f}" for column in seconds), style="bold")
    return table


def frequent_operations(modules: Mapping[OutputType, ir.Module]) -> Table:
    """Return the most frequent operations of each module."""
    table = _table("Ops", "output type", "ops", "most frequent", right=("ops",))
    for output_type, module in modules.items():
        counts = count_ops(module)
        frequent = ", ".join(f"{name} {count}" for name, count in counts.most_common(MOST_FREQUENT))
        table.add_row(output_type.value, f"{counts.total():,}", frequent)
    return table


def count_ops(module: ir.Module) -> Counter[str]:
    """Return the number of operations in ``module`` by name, including nested ones.

    Modules, functions and terminators are not counted.
    """
    counts = Counter(op.name for op in operations(module.operation))
    return Counter(
        {name: n for name, n in counts.items() if not name.endswith((".module", ".func", ".return", ".yield"))}
    )


def files(paths: Mapping[OutputType, Path]) -> Table:
    """Return the files written."""
    table = _table("Files, as bytecode", "output type", "MB", "file", right=("MB",))
    for output_type, path in paths.items():
        table.add_row(output_type.value, f"{path.stat().st_size / 1e6:.1f}", str(path))
    return table


def similarities(sentences: Sequence[str], ours: Sequence[float], eager: Sequence[float]) -> Table:
    """Return every pair of sentences with its cosine similarity, in descending order."""
    columns = "MLIR JIT", REFERENCE_ENGINE
    table = _table("Cosine similarities", "sentence", "sentence", *columns, right=columns)
    pairs = itertools.combinations(sentences, 2)
    for (a, b), mine, theirs in sorted(zip(pairs, ours, eager, strict=True), key=lambda row: -row[1]):
        table.add_row(a, b, f"{mine:.6f}", f"{theirs:.6f}")
    return table


def _table(title: str, *columns: str, right: Sequence[str] | None = None) -> Table:
    """Return an empty table. Columns other than the first are right-aligned unless ``right`` names those that are."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        aligned = index > 0 if right is None else column in right
        table.add_column(column, justify="right" if aligned else "left")
    return table
