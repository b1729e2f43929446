"""Time of calls: eager PyTorch and Inductor beside the engines that run what we lower, and engines by their own roads.

    python benchmarks/run_time.py                          # all models, one thread, batch 1, float32
    python benchmarks/run_time.py resnet50 --batch 1 8 --dtype fp32 bf16 --threads 1 2 --json times.json
    python benchmarks/run_time.py --from times.json --docs

Each engine has a process of its own, and they take turns. docs/performance.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout need not be installed to be measured

from benchmarks.against_torch_mlir import machine
from benchmarks.run_time_models import DTYPES, MODELS, load
from benchmarks.running.own_roads import OWN_ROADS
from benchmarks.running.roofline import Roofline, flops_and_bytes
from benchmarks.running.runs import Run, read, tables
from fx_importer.benchmarking import Engine, chosen_engines, measure
from fx_importer.benchmarking.measurement import remarks
from fx_importer.options import Limits

ROOT = Path(__file__).resolve().parent.parent
_LIMITS = Limits(seconds=900)


def engines_named(names: list[str]) -> list[Engine]:
    """Return the engines of ``names``, eager first: those of `fx-importer bench`, and those of `OWN_ROADS`."""
    ours = {each.name: each for each in chosen_engines()}
    there = [each.partition(":")[0] for each in ours | OWN_ROADS]
    if unknown := set(names) - set(there):
        sys.exit(f"unknown engines {', '.join(sorted(unknown))}: there are {', '.join(dict.fromkeys(there))}")
    chosen = [each for name, each in (ours | OWN_ROADS).items() if not names or name.partition(":")[0] in names]
    return [ours["eager"], *(each for each in chosen if each.name != "eager")]


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    parser.add_argument("--engines", nargs="+", default=[], help="inductor, jit, iree, xla, iree-turbine, jax; or all")
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--dtype", nargs="+", default=["fp32"], choices=DTYPES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write every measurement to this file, after each model")
    parser.add_argument("--from", type=Path, dest="given", help="measure nothing: read what --json wrote")
    parser.add_argument("--docs", action="store_true", help="write tables and a plot into docs/performance.md")
    options = parser.parse_args()
    if unknown := set(options.models) - MODELS.keys():
        parser.error(f"unknown models {', '.join(sorted(unknown))}: there are {', '.join(MODELS)}")
    if options.given:
        described, rooflines, runs = read(options.given)
    else:
        described = machine()
        rooflines = [Roofline.measured(threads, options.dtype) for threads in options.threads]
        runs: list[Run] = []
        engines = engines_named(options.engines)
        settings = itertools.product(options.batch, options.dtype, options.threads)
        for model, (batch, dtype, threads) in itertools.product(options.models or MODELS, settings):
            loading = partial(load, model, batch, dtype)
            found = measure(loading, engines, threads, options.turns, _LIMITS)
            runs.append(Run(model, batch, dtype, threads, *flops_and_bytes(loading), tuple(found)))
            print(f"{runs[-1].title}\n\n{runs[-1].table()}\n", *remarks(found), sep="\n", file=sys.stderr, flush=True)
            if options.json:  # after each, so that an interrupted run keeps its results
                held = {"machine": described, "rooflines": rooflines, "runs": runs}
                options.json.write_text(json.dumps(held, default=asdict, indent=1))
    print(tables(described, rooflines, runs))
    if options.docs:
        from benchmarks.running import page  # only here: plots need matplotlib, the extra bench

        page.write(ROOT, described, rooflines, runs)


if __name__ == "__main__":
    main()
