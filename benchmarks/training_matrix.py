"""The gradients of every operator of OpInfo × output type: lowered, run, and held against eager's.

    python -m benchmarks.training_matrix --json gradients.json --ops 'nn\\..*'
    python -m benchmarks.training_matrix --json gradients.json --write    # renew the tables of docs/training.md

It goes on where it stopped; `benchmarks.op_matrix` says more.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.op_matrix import OUTPUT_TYPES, Row, cell_text, measure, read_rows, summary

PAGE = Path(__file__).parents[1] / "docs" / "training.md"
BEGIN, END = "<!-- begin gradients -->\n", "<!-- end gradients -->\n"


def write_page(rows: Sequence[Row]) -> None:
    """Renew the counts and the table of what does not pass, between the marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    shown = ["", "```text", summary(rows), "```", "", *failures(rows), ""]
    PAGE.write_text(before + BEGIN + "\n".join(shown) + "\n" + END + rest.partition(END)[2], encoding="utf-8")


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a table of every operator that does not pass, with its reasons."""
    by_op: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_op.setdefault(row["op"], {})[row["output_type"]] = row
    lines = [f"| gradient of | {' | '.join(OUTPUT_TYPES)} |", "|---|" + "---|" * len(OUTPUT_TYPES)]
    for name, found in sorted(by_op.items()):
        if any(row["status"] not in ("pass", "skip", "export") for row in found.values()):
            lines.append(f"| {name} | {' | '.join(cell_text(found[kind]) for kind in OUTPUT_TYPES)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not in the file yet; print each row that does not pass, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=".*", help="a regular expression that the whole name matches")
    parser.add_argument("--output-types", default=",".join(OUTPUT_TYPES), help="separated by commas")
    parser.add_argument("--samples", type=int, default=2, help="how many of each operator")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120, help="time limit for one operator and output type")
    parser.add_argument("--json", type=Path, help="a file of JSON lines; what it holds already is not run again")
    parser.add_argument("--again", default="", help="statuses, separated by commas, that are run again all the same")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.name} from the file; run nothing")
    options = parser.parse_args(arguments)
    rows = read_rows(options.json)
    if options.write:
        write_page(rows)
        return 0
    again = set(filter(None, options.again.split(",")))
    kept = [row for row in rows if row["status"] not in again or not re.fullmatch(options.ops, row["op"])]
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    done = {(row["op"], row["output_type"]) for row in kept}
    fresh: list[Row] = []
    requests = [
        {"op": name, "output_types": left, "dtype": "float32", "samples": options.samples, "gradients": True}
        for name in differentiable()
        if re.fullmatch(options.ops, name)
        and (left := [kind for kind in options.output_types.split(",") if (name, kind) not in done])
    ]
    for row in measure(requests, options.workers, options.seconds):
        fresh.append(row)
        if row["status"] not in ("pass", "skip", "export"):
            print(f"{row['op']:40} {row['output_type']:18} {row['status']:9} {row['reason'][:200]}", flush=True)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(summary([*kept, *fresh]))
    return 0


def differentiable() -> list[str]:
    """Return the operators that OpInfo differentiates in float32."""
    import torch

    from benchmarks.op_cases import operators

    return [
        name
        for name, op in operators().items()
        if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    ]


if __name__ == "__main__":
    sys.exit(main())
