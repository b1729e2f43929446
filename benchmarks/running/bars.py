"""What the figures should be, beside what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.running.compiling import Compiling
from benchmarks.running.runs import FRONT_END_OF, OURS, RIVALS, Figures, Run, described, geometric_mean, markdown

_SPEEDS = (
    ("jit", "eager", 1.0, 0.7),
    ("iree", FRONT_END_OF["iree"], 0.95, None),
    ("xla", FRONT_END_OF["xla"], 0.95, None),
    (OURS, "inductor", 1.0, 0.8),
    *(("jit", rival, 1.0, 0.85) for rival in RIVALS),
)
_TRAINING = (("torch.compile", "eager", 1.0, None),)
"""An engine, the one beside it, the least geometric mean of speeds, and the least speed of a model."""
_MEMORY = 1.2
"""Most memory of calls of a model, divided by eager's."""
_COMPILING = {"compiled": 3.0, "cached": 0.5}
"""Most CPU seconds of a model of BERT's size."""
_ADDITION = (("jit", "eager", 15.0), ("torch.compile", "inductor", 10.0))
"""An engine, the one beside it, and how many microseconds it may take more for one addition."""


def bars(figures: Figures) -> str:
    """Return tables of what was measured, with what it should be, and whether it is."""
    speeds = [*_speeds(figures.models, _SPEEDS), *_speeds(figures.training, _TRAINING)]
    others = [*_additions(figures.additions), *_compiling(figures.compiling), *_memory(figures)]
    parts = [
        markdown(["speed", "geometric mean", "least", "should be", ""], speeds) if speeds else "",
        markdown(["cost", "measured", "at most", ""], others) if others else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _speeds(runs: Sequence[Run], bars: Sequence[tuple[str, str, float, float | None]]) -> Iterator[list[str]]:
    for engine, beside, mean, least in bars:
        for setting in dict.fromkeys(run.setting for run in runs):
            chosen = [run for run in runs if run.setting == setting]
            found = {run.model: speed for run in chosen if (speed := run.speed(engine, beside))}
            if not found:
                continue
            reached, slowest = geometric_mean(found.values()), min(found, key=lambda each: found[each])
            yield [
                f"{engine} / {beside}, {described(setting)}",
                f"{reached:.2f} ({len(found)})",
                f"{found[slowest]:.2f} ({slowest})",
                f"mean {mean}" + (f", each {least}" if least else ""),
                _verdict(reached >= mean and found[slowest] >= (least or 0.0)),
            ]


def _additions(runs: Sequence[Run]) -> Iterator[list[str]]:
    for engine, beside, most in _ADDITION:
        for run in runs:
            if (ours := run.of(engine)) and (other := run.of(beside)):
                over = 1e6 * (ours.median - other.median)
                what = f"one addition, {engine} over {beside}, {described(run.setting)}"
                yield [what, f"{over:.1f} µs", f"{most:.0f} µs", _verdict(over <= most)]


def _compiling(compiling: Sequence[Compiling]) -> Iterator[list[str]]:
    for each in compiling:
        for how, most in _COMPILING.items():
            seconds: float = getattr(each, how)
            yield [f"JIT, {each.model} {how}", f"{seconds:.2f} CPU s", f"{most} s", _verdict(seconds <= most)]


def _memory(figures: Figures) -> Iterator[list[str]]:
    for setting in dict.fromkeys((each.batch, each.dtype, 1) for each in figures.saved):
        saved = {each.model: each.ratio for each in figures.saved if (each.batch, each.dtype, 1) == setting}
        yield _memory_row("a saved module on the JIT", setting, saved)
    for setting in dict.fromkeys(run.setting for run in figures.models):
        pairs = [(run.model, run.of("jit"), run.of("eager")) for run in figures.models if run.setting == setting]
        found = {model: ours.call_memory / eager.call_memory for model, ours, eager in pairs if ours and eager}
        if found:
            yield _memory_row("JIT, in the process that lowers", setting, found)


def _memory_row(what: str, setting: tuple[int, str, int], found: Mapping[str, float]) -> list[str]:
    over = [f"{model} {ratio:.2f}" for model, ratio in found.items() if ratio > _MEMORY]
    measured = ", ".join(over) or f"{max(found.values()):.2f}"
    return [f"{what}, memory / eager's, {described(setting)}", measured, f"{_MEMORY}", _verdict(not over)]
