"""Time of calls: eager PyTorch beside the engines that run what we lower, interleaved in one process.

    python benchmarks/run_time.py                          # all models, one thread, batch 1
    python benchmarks/run_time.py resnet50 --batch 8 --threads 2 --json times.json

With one thread it counts the CPU time of the thread, which other processes disturb less; else wall time. Inductor takes
part with ``--inductor``, where there is a C++ compiler. Another engine is one more record of `ENGINES`.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from run_time_models import MODELS

from fx_importer import lower

Call = Callable[..., Any]


@dataclass(frozen=True)
class Engine:
    """Something that runs a model."""

    name: str
    prepare: Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], Call]
    """Return the function to call; it may compile on its first call."""


def _jit(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Call:
    return lower(model, *inputs, output_type="linalg-on-tensors").caller(backend="jit")


ENGINES = {
    each.name: each
    for each in (
        Engine("eager", lambda model, inputs: model),
        Engine("inductor", lambda model, inputs: torch.compile(model)),
        Engine("jit", _jit),
    )
}


@dataclass(frozen=True)
class Times:
    """The times of a model on an engine, in seconds; the difference is relative to eager's largest number."""

    model: str
    engine: str
    batch: int
    threads: int
    prepare: float
    first_call: float
    calls: list[float]
    difference: float
    peak_mb: float

    @property
    def median(self) -> float:
        """The median of the calls after the first."""
        return statistics.median(self.calls)


def measure(model: str, engines: list[Engine], batch: int, threads: int, runs: int) -> list[Times]:
    """Return the times of one model, on all engines in turns."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    module, inputs = MODELS[model](batch)
    module.eval()
    expected = module(*inputs)
    prepared: list[tuple[Engine, Call, float, float, float, float]] = []
    for engine in engines:
        call, preparing = _timed(clock, lambda engine=engine: engine.prepare(module, inputs))
        found, first = _timed(clock, lambda call=call: call(*inputs))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        prepared.append((engine, call, preparing, first, _difference(found, expected), peak))
    calls: list[list[float]] = [[] for _ in prepared]
    for _ in range(runs):
        for times, (_, call, *_) in zip(calls, prepared, strict=True):
            times.append(_timed(clock, lambda call=call: call(*inputs))[1])
    return [
        Times(model, engine.name, batch, threads, preparing, first, times, difference, peak)
        for times, (engine, _, preparing, first, difference, peak) in zip(calls, prepared, strict=True)
    ]


def _timed(clock: Callable[[], float], function: Callable[[], Any]) -> tuple[Any, float]:
    start = clock()
    return function(), clock() - start


def _difference(found: Any, expected: Any) -> float:
    pairs = zip(_tensors(found), _tensors(expected), strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)


def _tensors(value: Any) -> tuple[torch.Tensor, ...]:
    return (value,) if isinstance(value, torch.Tensor) else tuple(value)


def table(times: list[Times]) -> str:
    """Return a table in Markdown. The speed is that of eager PyTorch, divided."""
    lines = ["| model | engine | load s | first call s | ms: median (range) | speed | difference |", "|" + "---|" * 7]
    eager = {each.model: each.median for each in times if each.engine == "eager"}
    speeds: dict[str, list[float]] = {}
    for each in times:
        speed = eager[each.model] / each.median
        speeds.setdefault(each.engine, []).append(speed)
        spread = f"{each.median * 1e3:.1f} ({min(each.calls) * 1e3:.1f}-{max(each.calls) * 1e3:.1f})"
        cells = (each.model, each.engine, f"{each.prepare:.2f}", f"{each.first_call:.2f}", spread)
        lines.append(f"| {' | '.join(cells)} | {speed:.2f} | {each.difference:.0e} |")
    for engine, found in speeds.items():
        mean = math.exp(statistics.fmean(map(math.log, found)))
        lines.append(f"| geometric mean | {engine} | | | | {mean:.2f} | |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--inductor", action="store_true", help="compare with Inductor too")
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    options = parser.parse_args()
    if unknown := set(options.models) - MODELS.keys():
        parser.error(f"unknown models {', '.join(sorted(unknown))}: there are {', '.join(MODELS)}")
    engines = [each for name, each in ENGINES.items() if name != "inductor" or options.inductor]
    times: list[Times] = []
    with torch.no_grad():
        for model in options.models or MODELS:
            times += measure(model, engines, options.batch, options.threads, options.runs)
    print(table(times))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in times], indent=1))


if __name__ == "__main__":
    main()
