"""Write a run into docs/performance.md, with a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

from benchmarks.rows import renew
from benchmarks.running.roofline import Roofline
from benchmarks.running.runs import Run, described, engines_of, tables

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "fx_importer", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen

_SECTION = "figures of benchmarks/run_time.py --docs"


def write(root: Path, machine: Mapping[str, str], rooflines: Sequence[Roofline], runs: Sequence[Run]) -> None:
    """Write tables and the plot of ``runs`` under ``root``."""
    models = [each for each in runs if each.flops]
    _draw(models, root / "docs" / "performance" / "calls.svg")
    text = f"![Speed beside eager](performance/calls.svg)\n\n{tables(machine, rooflines, runs)}"
    renew(root / "docs" / "performance.md", _SECTION, f"\n{text}\n\n")


def _draw(runs: Sequence[Run], path: Path) -> None:
    """Speed beside eager: a group of bars for each model, a plot for each setting."""
    settings = list(dict.fromkeys(each.setting for each in runs))
    engines = [each for each in engines_of(runs) if each != "eager"]
    figure, axes = plt.subplots(len(settings), 1, figsize=(10, 3.2 * len(settings)), squeeze=False)
    for axis, setting in zip(axes[:, 0], settings, strict=True):
        chosen = [each for each in runs if each.setting == setting]
        width = 0.8 / len(engines)
        for i, engine in enumerate(engines):
            at = [place + i * width for place in range(len(chosen))]
            axis.bar(at, [run.speed(engine) or 0.0 for run in chosen], width, label=engine)
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_xticks([place + 0.4 for place in range(len(chosen))], [run.model for run in chosen], rotation=15)
        axis.set(title=described(setting), ylabel="times eager's speed")
    axes[0, 0].legend(fontsize=7, ncols=4)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
