"""Write the measurements of a run into the documentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.comparison.cases import MODELS, OUTPUTS
from benchmarks.comparison.chart import chart
from benchmarks.comparison.summary import Result, Spread, ratio
from benchmarks.comparison.tables import Pair, short, spread_text
from benchmarks.rows import renew

_SECTION = "figures of benchmarks/against_torch_mlir.py --docs"
_PLOTS = {
    "stages": "CPU seconds by stage",
    "nodes": "CPU time per node",
    "memory": "Peak memory in addition to the model",
}


def write(root: Path, pairs: Sequence[Pair], machine: Mapping[str, str], tables: str) -> None:
    """Write the figures under ``root``: all of them into the page of measurements, the models' into the README."""
    measurements = root / "docs" / "measurements"
    machine_line = ", ".join(f"{key} {value}" for key, value in machine.items())
    plots = [
        f"![{title}](lowering_{name}.svg)"
        for name, title in _PLOTS.items()
        if (measurements / f"lowering_{name}.svg").exists()
    ]
    figures = "\n\n".join([f"One run: {machine_line}.", _models(pairs), *plots, tables.strip()])
    renew(measurements / "lowering.md", _SECTION, f"\n{figures}\n\n")
    models = [pair for pair in pairs if pair[1].case.program in MODELS]
    linalg = [pair for pair in models if pair[1].case.output_type == OUTPUTS[0]]
    (measurements / "lowering.svg").write_text(chart(linalg))
    renew(root / "README.md", _SECTION, f"\n{_summary(models, machine)}\n\n")


def _summary(models: Sequence[Pair], machine: Mapping[str, str]) -> str:
    """Return the chart, and one sentence with the range over models and output types."""
    ratios = [found for pair in models if (found := _ratio(*pair, "seconds"))]
    faster = [found.middle for found in ratios]
    mean = math.exp(sum(map(math.log, faster)) / len(faster))
    return (
        "![CPU seconds to lower models to linalg-on-tensors](docs/measurements/lowering.svg)\n\n"
        f"Over these models and three output types, the speedup is {short(min(faster), 2)} to {short(max(faster), 2)}, "
        f"{short(mean, 2)} in the geometric mean\n({machine['processor']}, commit {machine['commit']}; "
        "[all figures](docs/measurements/lowering.md)). `make bench` measures it."
    )


def _models(pairs: Sequence[Pair]) -> str:
    """Return a row per model: the ratios of CPU time and memory for each output type."""
    found = {(ours.case.program, ours.case.output_type): (peer, ours) for peer, ours in pairs}
    rows = [
        "| lower than `torch_mlir.fx` by | " + " | ".join(f"CPU time, {o} | memory" for o in OUTPUTS) + " |",
        "|---|" + "---:|---:|" * len(OUTPUTS),
    ]
    for model in MODELS:
        cells: list[str] = []
        for output_type in OUTPUTS:
            pair = found.get((model, output_type))
            cells += ["", ""] if pair is None else [_times(*pair, "seconds"), _times(*pair, "peak_bytes")]
        rows.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _ratio(peer: Result, ours: Result, quantity: str) -> Spread | None:
    return ratio(*(side.spread(lambda run: getattr(run, quantity)) for side in (peer, ours)))


def _times(peer: Result, ours: Result, quantity: str) -> str:
    found = _ratio(peer, ours, quantity)
    return f"{spread_text(found, 2, with_range=False)}x" if found else short(0)
