"""Compare the torch dialect of `fx_importer.fx` and of `torch_mlir.fx` as text: operators of OpInfo, programs.

    python -m testing.drop_in                              # own programs, raw and torch
    python -m testing.drop_in --kinds static dynamic --ops 'add|mm' --samples 2
    python -m testing.drop_in --kinds static --json drop_in.json      # goes on where it stopped

The exit code is 1 if a text differs, or if we refuse what torch-mlir lowers. Programs run in a worker process: one that
ends it is an outcome.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.worker import Child, RestartingWorker

WRONG = ("differs", "refused by us", "crash of ours")
"""Outcomes that fail the comparison."""


def names_of(kind: str) -> list[str]:
    """Return the names of a kind: operators of OpInfo, or the programs of `testing.drop_in_programs`."""
    if kind == "programs":
        from testing.drop_in_programs import programs

        return list(programs())
    from testing.op_cases import operators

    return list(operators())


def compared(kind: str, names: Sequence[str], samples: int, limits: Limits) -> Iterator[dict[str, str]]:
    """Yield a row for each program and output type."""
    worker = RestartingWorker(lambda: Child("testing.drop_in_cases:Texts"))
    for name in names:
        child = worker.running()
        try:
            rows = child.ask(name, (kind, name, samples), limits)
        except CrashedError as error:
            side, _, output_type = child.noted.partition(" ")
            reason = " ".join(str(error).split())[-200:]
            rows = [{"sample": "?", "output_type": output_type, "outcome": f"crash of {side}", "reason": reason}]
        yield from ({"kind": kind, "name": name, **row} for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print rows that are not the same, and the number of rows by outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["programs"], help="programs, static, dynamic")
    parser.add_argument("--ops", default=".*", help="a regular expression of names")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--shard", default="0/1", help="this part of that many")
    parser.add_argument("--json", type=Path, help="rows of earlier runs, whose names are not run again")
    options = parser.parse_args(arguments)
    rows = [json.loads(line) for line in options.json.open()] if options.json and options.json.exists() else []
    known = {(row["kind"], row["name"]) for row in rows}
    part, parts = map(int, options.shard.split("/"))
    for kind in options.kinds:
        names = [name for name in names_of(kind) if re.fullmatch(options.ops, name) and (kind, name) not in known]
        for row in compared(kind, names[part::parts], options.samples, Limits(options.seconds)):
            rows.append(row)
            if row["outcome"] not in ("same", "skip"):
                print(*row.values(), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    print(json.dumps(row), file=file)
    for outcome, count in Counter((row["kind"], row["output_type"], row["outcome"]) for row in rows).items():
        print(*outcome, count)
    return int(any(row["outcome"] in WRONG for row in rows))


if __name__ == "__main__":
    sys.exit(main())
