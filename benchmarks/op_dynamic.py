"""The matrix of operators with dynamic sizes: every size that can be is dynamic, and doubled at run time.

    python -m benchmarks.op_dynamic --json dynamic.json              # everything; goes on where it stopped
    python -m benchmarks.op_dynamic --json dynamic.json --write      # renew measurements/op_dynamic.md

A graph that is right for the sizes of the example only shows itself so; `benchmarks.op_matrix` says more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.op_matrix import parser_of_operators, run, summary
from benchmarks.op_reasons import reason_of_sizes
from benchmarks.rows import DOCS, Row, read_rows, renew

OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")
"""TOSA's specification has static shapes: its reference model runs a static copy."""
PAGE = DOCS / "measurements" / "op_dynamic.md"


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a table of every operator that does not pass, where it stopped and why."""
    by_op: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_op.setdefault(row["op"], {})[row["output_type"]] = row
    lines = [f"| operator | {' | '.join(OUTPUT_TYPES)} | why |", "|---|" + "---|" * (1 + len(OUTPUT_TYPES))]
    for name, found in sorted(by_op.items()):
        if any(row["status"] not in ("pass", "skip", "export") for row in found.values()):
            statuses = " | ".join(found[kind]["status"] if kind in found else "" for kind in OUTPUT_TYPES)
            lines.append(f"| {name} | {statuses} | {reason_of_sizes(name)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of_operators(__doc__, PAGE)
    parser.set_defaults(samples=1, workers=1, output_types=",".join(OUTPUT_TYPES))
    options = parser.parse_args(arguments)
    if options.write:
        rows = read_rows(options.json)
        renew(PAGE, "operators", "\n".join(["", "```text", summary(rows), "```", "", *failures(rows), "", ""]))
    else:
        from testing.op_cases import operators

        run(options, operators(), dtype="", kind="dynamic")
    return 0


if __name__ == "__main__":
    sys.exit(main())
