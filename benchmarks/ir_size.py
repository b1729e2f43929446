"""Count operations of our modules, torch_mlir.fx's and jax's, and write docs/measurements/ir_size.md.

python -m benchmarks.ir_size                       # all programs and models
python -m benchmarks.ir_size --only lstm,unet      # these, the others stay as they are stored
python -m benchmarks.ir_size --ours                # the other sides stay as they are stored
python -m benchmarks.ir_size --only lstm --show    # print names of operations, and write nothing
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch_mlir import fx as peer

from benchmarks.module_size.counts import Counts, count, names_of, undecided
from benchmarks.module_size.models import MODELS
from benchmarks.module_size.page import JAX, LARGER, OURS, OUTPUT_TYPES, PEER, UNDECIDED, draw, larger, read, write
from benchmarks.module_size.programs import PROGRAMS
from fx_importer import lower


def modules(name: str, ours_only: bool) -> dict[str, dict[str, Any]]:
    """Return the modules of a program or model by output type and side; sides that fail are missing."""
    if name in PROGRAMS:
        model, args = PROGRAMS[name].build()
        kwargs: dict[str, Any] = {}
    else:
        model, args, kwargs = MODELS[name]()
    program = torch.export.export(model, args, kwargs)
    found: dict[str, dict[str, Any]] = {}
    for output_type in OUTPUT_TYPES:
        found[output_type] = {OURS: lower(program, output_type=output_type).module}
        if ours_only:
            continue
        try:
            found[output_type][PEER] = peer.export_and_import(program, output_type=output_type)
        except Exception as error:
            print(f"{name}: torch_mlir.fx fails: {str(error).splitlines()[0]}", file=sys.stderr)
    if name in PROGRAMS and PROGRAMS[name].in_jax and not ours_only:
        from benchmarks.module_size.jax_programs import jax_module

        found["stablehlo"][JAX] = jax_module(PROGRAMS[name])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page; the exit code is 1 if a module of ours has what the page gives no reason for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of programs and models, separated by commas")
    parser.add_argument("--ours", action="store_true", help="count our modules only")
    parser.add_argument("--show", action="store_true", help="print operations by name, and write nothing")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    tables = read()
    names = options.only.split(",") if options.only else [*PROGRAMS, *MODELS]
    surprising = False
    for name in names:
        table = tables["programs" if name in PROGRAMS else "models"]
        stored = table.get(name, {}) if options.ours else {}
        counts: dict[str, dict[str, Counts]] = {}
        for output_type, sides in modules(name, options.ours).items():
            measured = {side: count(module) for side, module in sides.items()}
            counts[output_type] = {**stored.get(output_type, {}), **measured}
            if unlisted := undecided(sides[OURS]).keys() - UNDECIDED[output_type].keys():
                surprising = True
                print(f"{name}: {output_type}: no input decides {', '.join(sorted(unlisted))}", file=sys.stderr)
            for side, module in sides.items() if options.show else ():
                print(name, output_type, side, counts[output_type][side])
                print("   ", dict(names_of(module).most_common()), "undecided:", dict(undecided(module)))
        table[name] = counts
        if not options.show:
            orders = {"programs": PROGRAMS, "models": MODELS}
            write(
                {key: {row: tables[key][row] for row in order if row in tables[key]} for key, order in orders.items()}
            )
    if not options.show:
        draw(read()["models"])
    return int(surprising or larger(tables) != set(LARGER))


if __name__ == "__main__":
    sys.exit(main())
