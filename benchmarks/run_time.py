"""Time of calls: eager PyTorch, its rivals, the engines that run our modules, and their native front ends.

    python benchmarks/run_time.py --batch 1 8 --threads 1 2 --json times.json --docs    # the tables of the pages
    python benchmarks/run_time.py resnet50 --engines jit iree --dtype fp32 bf16
    python benchmarks/run_time.py --from times.json --docs

Each engine has a process of its own, and they take turns. Without models and dtypes, some models are measured in
bfloat16 too, and training steps. What ``--json`` holds already is not measured again, so that an interrupted run goes
on. docs/measurements/calls.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout need not be installed to be measured

from benchmarks.against_torch_mlir import machine
from benchmarks.run_time_models import DTYPES, MODELS, load
from benchmarks.running.bars import bars
from benchmarks.running.compiling import Compiling
from benchmarks.running.front_ends import FRONT_ENDS, TORCH_COMPILE
from benchmarks.running.roofline import Roofline, flops_and_bytes
from benchmarks.running.runs import TRAINING, Figures, Run, tables
from benchmarks.running.saved_module import SavedModule
from benchmarks.running.training import STEPS, TRAINED, load_training
from fx_importer.benchmarking import Candidate, chosen_engines, measure
from fx_importer.benchmarking.measure import remarks
from fx_importer.options import Limits

ROOT = Path(__file__).resolve().parent.parent
_LIMITS = Limits(seconds=300)
_OURS = ("inductor", "onnxruntime", "openvino", "jit", "xla")
_ON_ONE_THREAD = ("inductor", "onnxruntime", "openvino", "jit", "iree:linalg-on-tensors", "xla", "iree-turbine", "jax")
"""The engines of the page. Native front ends run on one thread."""
_IN_BF16 = ("bert_base", "gpt2", "llama_1b_layer_decode", "resnet50", "mobilenet")
_SECONDS = 2.0
"""Of the calls of an engine on a model: three calls are enough then."""
_CLOSE = 0.02
"""A difference of quartiles with which five turns are enough."""
_COMPILED = "bert_base"
"""The model whose compilation is timed."""


def engines_named(names: Sequence[str]) -> list[Candidate]:
    """Return the engines of ``names``, eager first: engines of `fx-importer bench` and of `FRONT_ENDS`."""
    ours = {each.name: each for each in chosen_engines()}
    there = [part for each in ours | FRONT_ENDS for part in (each.partition(":")[0], each)]
    if unknown := set(names) - set(there):
        sys.exit(f"unknown engines {', '.join(sorted(unknown))}: there are {', '.join(dict.fromkeys(there))}")
    chosen = [each for name, each in (ours | FRONT_ENDS).items() if {name, name.partition(":")[0]} & set(names)]
    return [ours["eager"], *(each for each in chosen if each.name != "eager")]


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    named = f"by default: {', '.join(_ON_ONE_THREAD)}; with more than one thread {', '.join(_OURS)}"
    parser.add_argument("--engines", nargs="+", help=named)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--dtype", nargs="+", choices=DTYPES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--turns", type=int, default=40, help="at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin with no other model after these")
    parser.add_argument("--json", type=Path, help="a file of measurements, renewed after each model")
    parser.add_argument("--from", type=Path, dest="given", help="measure nothing: read what --json wrote")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="write tables and a plot into docs/measurements/calls.md, and means into docs/measurements/engines.md",
    )
    options = parser.parse_args()
    if unknown := set(options.models) - MODELS.keys():
        parser.error(f"unknown models {', '.join(sorted(unknown))}: there are {', '.join(MODELS)}")
    figures = Figures.read(options.given) if options.given else _measured(options)
    print(*(part for part in (bars(figures), tables(figures)) if part), sep="\n\n")
    if options.docs:
        from benchmarks.running import page  # only here: plots need matplotlib, the extra bench

        page.write(ROOT, figures)


def _measured(options: argparse.Namespace) -> Figures:
    """Return what the file of ``--json`` holds, and what is missing in it, measured now."""
    figures = Figures(machine())
    if options.json and options.json.exists():
        begun, here = Figures.read(options.json), figures.machine["commit"]
        if begun.machine["commit"] != here:
            sys.exit(f"{options.json} has figures of commit {begun.machine['commit']}, and this is {here}")
        figures = begun
    stages = list(_stages(options))
    _measure_roofs(figures, options, list(dict.fromkeys(each.dtype for each in stages if each.dtype in DTYPES)))
    if _COMPILED in (options.models or MODELS) and not figures.compiling:
        figures.compiling.append(Compiling.measured(_COMPILED))
        _keep(figures, options.json)
    there = {(run.model, *run.setting) for run in figures.runs}
    end = time.monotonic() + 60 * options.minutes
    for stage in stages:
        if (stage.model, stage.batch, stage.dtype, stage.threads) in there:
            continue
        if time.monotonic() > end:
            print(f"{options.minutes} minutes are over: started again, it goes on", file=sys.stderr)
            break
        start = time.monotonic()
        if stage.is_saved and "jit" in (options.engines or _OURS):
            figures.saved.append(SavedModule.measured(stage.model, stage.batch, stage.dtype))
        run, notes = stage.measured(options)
        figures.runs.append(run)
        took = f"{time.monotonic() - start:.0f} s"
        print(f"{run.title}: {took}\n\n{run.table()}\n", *notes, sep="\n", file=sys.stderr, flush=True)
        _keep(figures, options.json)
    return figures


@dataclass(frozen=True)
class _Stage:
    """A model in one setting, as in `Run`."""

    model: str
    batch: int
    dtype: str
    threads: int

    def measured(self, options: argparse.Namespace) -> tuple[Run, list[str]]:
        """Measure it on the engines of ``options``; return the run, and remarks."""
        if self.dtype == TRAINING:
            load_it, engines, work = partial(load_training, self.model), STEPS, (0, 0)
        else:
            load_it = partial(load, self.model, self.batch, self.dtype)
            engines = engines_named(options.engines or (_ON_ONE_THREAD if self._has_front_ends else _OURS))
            work = flops_and_bytes(load_it)
        if self.model == "addition":
            engines = [*engines, TORCH_COMPILE]
        turns = (self.threads, options.turns, _LIMITS)
        found = measure(load_it, engines, *turns, seconds=_SECONDS, close=_CLOSE, loading_at_once=2)
        return Run(self.model, self.batch, self.dtype, self.threads, *work, tuple(found)), remarks(found)

    @property
    def is_saved(self) -> bool:
        """Whether the memory of a saved module is measured."""
        return self._has_front_ends and self.model != "addition"

    @property
    def _has_front_ends(self) -> bool:
        return self.threads == 1 and self.dtype == "fp32"


def _stages(options: argparse.Namespace) -> Iterator[_Stage]:
    """Yield what ``options`` ask for: what most of the bars are about first."""
    models, dtypes = options.models or MODELS, options.dtype or ["fp32"]
    for batch in options.batch:
        for threads in options.threads:
            yield from (_Stage(model, batch, dtype, threads) for dtype in dtypes for model in models)
        if batch == options.batch[0] and not options.models and not options.dtype:
            yield from (_Stage(model, 0, TRAINING, each) for each in options.threads for model in TRAINED)
            yield from (_Stage(model, batch, "bf16", options.threads[0]) for model in _IN_BF16)


def _keep(figures: Figures, file: Path | None) -> None:
    if file:
        figures.write(file)


def _measure_roofs(figures: Figures, options: argparse.Namespace, dtypes: Sequence[str]) -> None:
    """Measure the rooflines that are missing."""
    known = {each.threads for each in figures.rooflines if set(dtypes) <= each.flops.keys()}
    missing = [each for each in options.threads if each not in known]
    figures.rooflines = [each for each in figures.rooflines if each.threads not in missing]
    figures.rooflines += [Roofline.measured(each, dtypes) for each in missing]


if __name__ == "__main__":
    main()
