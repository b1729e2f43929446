"""Time of calls: eager PyTorch and Inductor beside the engines that run what we lower, and engines by their own roads.

    python benchmarks/run_time.py --batch 1 8 --threads 1 2 --json times.json --docs    # the tables of the page
    python benchmarks/run_time.py resnet50 --engines jit iree --dtype fp32 bf16
    python benchmarks/run_time.py --from times.json --docs

Each engine has a process of its own, and they take turns. What ``--json`` holds already is not measured again, so that
an interrupted run goes on. docs/performance.md says how to read the figures.
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
_ENGINES = ("inductor", "jit", "iree:linalg-on-tensors", "xla", "iree-turbine", "jax")
"""Those of the page: of IREE's output types the one with the most operators."""
_SECONDS = 4.0
"""Of the calls of an engine on a model: three calls are enough of those that take longer."""


def engines_named(names: list[str]) -> list[Engine]:
    """Return the engines of ``names``, eager first: those of `fx-importer bench`, and those of `OWN_ROADS`."""
    ours = {each.name: each for each in chosen_engines()}
    there = [part for each in ours | OWN_ROADS for part in (each.partition(":")[0], each)]
    if unknown := set(names) - set(there):
        sys.exit(f"unknown engines {', '.join(sorted(unknown))}: there are {', '.join(dict.fromkeys(there))}")
    chosen = [each for name, each in (ours | OWN_ROADS).items() if {name, name.partition(":")[0]} & set(names)]
    return [ours["eager"], *(each for each in chosen if each.name != "eager")]


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    parser.add_argument("--engines", nargs="+", default=_ENGINES, help="by default: " + ", ".join(_ENGINES))
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--dtype", nargs="+", default=["fp32"], choices=DTYPES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--json", type=Path, help="a file of measurements, renewed after each model")
    parser.add_argument("--from", type=Path, dest="given", help="measure nothing: read what --json wrote")
    parser.add_argument("--docs", action="store_true", help="write tables and a plot into docs/performance.md")
    options = parser.parse_args()
    if unknown := set(options.models) - MODELS.keys():
        parser.error(f"unknown models {', '.join(sorted(unknown))}: there are {', '.join(MODELS)}")
    if options.given:
        described, rooflines, runs = read(options.given)
    else:
        described, rooflines, runs = _measured(options)
    print(tables(described, rooflines, runs))
    if options.docs:
        from benchmarks.running import page  # only here: plots need matplotlib, the extra bench

        page.write(ROOT, described, rooflines, runs)


def _measured(options: argparse.Namespace) -> tuple[dict[str, str], list[Roofline], list[Run]]:
    """Return what the file of ``--json`` holds, and what is missing in it, measured now."""
    described, rooflines, runs = machine(), list[Roofline](), list[Run]()
    if options.json and options.json.exists():
        begun, rooflines, runs = read(options.json)
        if begun["commit"] != described["commit"]:
            sys.exit(f"{options.json} has figures of commit {begun['commit']}, and this is {described['commit']}")
        described = begun
    wanted = set(options.dtype)
    known = {each.threads for each in rooflines if wanted <= each.flops.keys()}
    missing = [each for each in options.threads if each not in known]
    rooflines = [each for each in rooflines if each.threads not in missing]
    rooflines += [Roofline.measured(each, options.dtype) for each in missing]
    engines = engines_named(options.engines)
    there = {(run.model, *run.setting) for run in runs}
    settings = itertools.product(options.batch, options.dtype, options.threads)
    for (batch, dtype, threads), model in itertools.product(settings, options.models or MODELS):
        if (model, batch, dtype, threads) in there:
            continue
        loading = partial(load, model, batch, dtype)
        found = measure(loading, engines, threads, options.turns, _LIMITS, seconds=_SECONDS, loading_at_once=2)
        runs.append(Run(model, batch, dtype, threads, *flops_and_bytes(loading), tuple(found)))
        print(f"{runs[-1].title}\n\n{runs[-1].table()}\n", *remarks(found), sep="\n", file=sys.stderr, flush=True)
        if options.json:
            held = {"machine": described, "rooflines": rooflines, "runs": runs}
            options.json.write_text(json.dumps(held, default=asdict, indent=1))
    return described, rooflines, runs


if __name__ == "__main__":
    main()
