"""Write the measurements of a run into the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.comparison.cases import MODELS, OUTPUTS
from benchmarks.comparison.summary import Result, Spread, ratio
from benchmarks.comparison.tables import Pair, short, spread_text
from benchmarks.rows import renew

_SECTION = "figures of benchmarks/against_torch_mlir.py --docs"
_PLOTS = {
    "stages": "CPU seconds by stage",
    "nodes": "CPU time for each node",
    "memory": "Peak memory beside the model",
}


def write(root: Path, pairs: Sequence[Pair], machine: Mapping[str, str], tables: str) -> None:
    """Write figures into the pages under ``root`` that have a place for them; the README has the models'."""
    machine_line = ", ".join(f"{key} {value}" for key, value in machine.items())
    plots = [
        f"![{title}](performance/{name}.svg)"
        for name, title in _PLOTS.items()
        if (root / "docs/performance" / f"{name}.svg").exists()
    ]
    figures = "\n\n".join([f"One run: {machine_line}.", *plots, tables.strip()])
    for page, text in ("docs/performance.md", figures), ("README.md", f"One run: {machine_line}.\n\n{_models(pairs)}"):
        renew(root / page, _SECTION, f"\n{text}\n\n")


def _models(pairs: Sequence[Pair]) -> str:
    """Return a row per model: the ratios of CPU time and memory for each output type."""
    found = {(ours.case.program, ours.case.output_type): (peer, ours) for peer, ours in pairs}
    rows = [
        "| times less than `torch_mlir.fx` | " + " | ".join(f"CPU time → {o} | memory" for o in OUTPUTS) + " |",
        "|---|" + "---:|---:|" * len(OUTPUTS),
    ]
    for model in MODELS:
        cells: list[str] = []
        for output_type in OUTPUTS:
            if (pair := found.get((model, output_type))) is None:
                cells += ["", ""]
                continue
            cells += [_times(*pair, "seconds"), _times(*pair, "peak_bytes")]
        rows.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _times(peer: Result, ours: Result, quantity: str) -> str:
    found: Spread | None = ratio(*(each.spread(lambda run: getattr(run, quantity)) for each in (peer, ours)))
    return spread_text(found, 2, with_range=False) if found else short(0)
