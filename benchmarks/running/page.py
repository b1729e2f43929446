"""Write figures into docs/measurements/calls.md, with a plot, and their means into docs/measurements/engines.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from benchmarks.rows import renew
from benchmarks.running.bars import bars
from benchmarks.running.runs import Figures, Run, described, engines_of, markdown, mean_cell, tables

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "fx_importer", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen

_SECTION = "figures of benchmarks/run_time.py --docs"


def write(root: Path, figures: Figures) -> None:
    """Write tables and the plot of ``figures`` under ``root``."""
    _draw(figures.models, root / "docs" / "measurements" / "calls.svg")
    parts = ("![Speed relative to eager](calls.svg)", bars(figures), tables(figures))
    renew(
        root / "docs" / "measurements" / "calls.md",
        _SECTION,
        "\n" + "\n\n".join(part for part in parts if part) + "\n\n",
    )
    renew(
        root / "docs" / "measurements" / "engines.md",
        _SECTION,
        f"\n{figures.of_machine}\n\n{_means(figures.models)}\n\n",
    )


def _means(runs: Sequence[Run]) -> str:
    """Geometric means of speeds relative to eager with the slowest model: a row for each engine and setting."""
    rows: list[list[str]] = []
    for engine in (each for each in engines_of(runs) if each != "eager"):
        for setting in dict.fromkeys(run.setting for run in runs):
            chosen = [run for run in runs if run.setting == setting]
            found = {run.model: speed for run in chosen if (speed := run.speed(engine))}
            if found:
                ends = (
                    f"{found[model]:.2f} ({model})"
                    for model in (min(found, key=found.__getitem__), max(found, key=found.__getitem__))
                )
                rows.append([engine, described(setting), mean_cell(found.values()), *ends])
    return markdown(["engine", "setting", "geometric mean (models)", "least", "most"], rows)


def _draw(runs: Sequence[Run], path: Path) -> None:
    """Speed relative to eager: a group of bars for each model, a plot for each setting."""
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
