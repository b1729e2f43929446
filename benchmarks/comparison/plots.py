"""Plots of the measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.comparison.cases import MODELS
from benchmarks.comparison.sides import SIDES, STAGES
from benchmarks.comparison.summary import Result, scalings

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "fx_importer", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
from matplotlib import pyplot as plt  # noqa: E402  # after the backend is chosen

PEER, OURS = SIDES
_COLORS = dict(zip(STAGES, ("#4c72b0", "#dd8452", "#8c8c8c", "#55a868", "#c44e52"), strict=True))
_SIDE_COLORS = {PEER: "#8c8c8c", OURS: "#4c72b0"}
_MEBI = 2**20


def draw(results: Sequence[Result], directory: Path) -> None:
    """Write the plots of ``results`` to ``directory``, as SVG; plots without measurements are skipped."""
    directory.mkdir(exist_ok=True)
    measured = [each for each in results if each.runs]
    plots: dict[str, tuple[Callable[[list[Result]], Any], list[Result]]] = {
        "stages": (_stages, [each for each in measured if each.case.program in MODELS]),
        "nodes": (_nodes, measured if scalings(measured) else []),
        "memory": (_memory, [each for each in measured if each.case.weights_only]),
    }
    for name, (plot, chosen) in plots.items():
        if chosen:
            figure = plot(chosen)
            figure.tight_layout()
            figure.savefig(directory / f"lowering_{name}.svg", metadata={"Date": None})
            plt.close(figure)


def _stages(results: list[Result]) -> Any:
    """CPU seconds by stage: one bar above the other for each case, torch_mlir.fx and ours."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 6), sharey=True)
    cases = list(dict.fromkeys(each.case.name for each in results))[::-1]
    for axis, side in zip(axes, SIDES, strict=True):
        found = {each.case.name: each for each in results if each.side == side}
        left = [0.0] * len(cases)
        for stage in STAGES:
            spreads = [found[name].stage(stage) if name in found else None for name in cases]
            widths = [each.middle if each else 0.0 for each in spreads]
            axis.barh(cases, widths, left=left, color=_COLORS[stage], label=stage)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axis.set_title(side)
        axis.set_xlabel("CPU seconds")
    axes[1].legend()
    return figure


def _nodes(results: list[Result]) -> Any:
    """CPU time for each node over the number of nodes."""
    scaled = scalings(results)
    families = list(dict.fromkeys(each.family for each in scaled))
    figure, axes = plt.subplots(1, len(families), figsize=(10, 4), squeeze=False)
    for axis, family in zip(axes[0], families, strict=True):
        for each in scaled:
            if each.family == family:
                style = {"linestyle": "-" if each.side == OURS else "--", "marker": "o"}
                costs = each.microseconds
                axis.plot(list(costs), list(costs.values()), label=f"{each.side} → {each.output_type}", **style)
        axis.set(title=family, xscale="log", yscale="log", xlabel="nodes", ylabel="µs of CPU time for each node")
        axis.legend(fontsize=7)
    return figure


def _memory(results: list[Result]) -> Any:
    """Peak memory in addition to the model, over its weights."""
    figure, axis = plt.subplots(figsize=(6, 4))
    for side in SIDES:
        for dtype, style in (("fp32", "-"), ("bf16", "--")):
            points = sorted(
                (each.runs[0].weights_bytes / _MEBI, max(peak.middle, 0.1))
                for each in results
                if each.side == side and each.case.program.endswith(dtype)
                if (peak := each.spread(lambda run: run.peak_bytes / _MEBI))
            )
            if points:
                x, y = zip(*points, strict=True)
                axis.plot(x, y, style, marker="o", color=_SIDE_COLORS[side], label=f"{side}, {dtype}")
    axis.set(xscale="log", yscale="log", xlabel="MB of weights", ylabel="MB at the peak, without the model")
    axis.legend()
    return figure
