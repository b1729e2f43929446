"""Lower and run the gradients of OpInfo's operators × output types, and compare with eager's.

    python -m benchmarks.training_matrix --json gradients.json --ops 'nn\\..*'
    python -m benchmarks.training_matrix --json gradients.json --write    # renew docs/measurements/gradients.md

It goes on where it stopped; `benchmarks.op_matrix` says more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.op_matrix import OUTPUT_TYPES, parser_of_operators, run, summary
from benchmarks.op_reasons import reason_of_gradient
from benchmarks.rows import DOCS, Row, read_rows, renew

PAGE = DOCS / "measurements" / "gradients.md"


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a table of every operator that does not pass, its stage and reason; and those that torch rejects."""
    by_op: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_op.setdefault(row["op"], {})[row["output_type"]] = row
    lines = [f"| gradient of | {' | '.join(OUTPUT_TYPES)} | why |", "|---|" + "---|" * (1 + len(OUTPUT_TYPES))]
    for name, found in sorted(by_op.items()):
        if any(row["status"] not in ("pass", "skip", "export") for row in found.values()):
            statuses = " | ".join(found[kind]["status"] for kind in OUTPUT_TYPES)
            lines.append(f"| {name} | {statuses} | {reason_of_gradient(name)} |")
    not_exported = [
        f"`{name}`" for name, found in sorted(by_op.items()) if found[OUTPUT_TYPES[0]]["status"] == "export"
    ]
    return [*lines, "", f"Not counted: torch cannot trace them: {', '.join(not_exported)}."]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of_operators(__doc__, PAGE)
    parser.set_defaults(samples=2, workers=1)
    options = parser.parse_args(arguments)
    if options.write:
        rows = read_rows(options.json)
        renew(PAGE, "gradients", "\n".join(["", "```text", summary(rows), "```", "", *failures(rows), "", ""]))
    else:
        run(options, differentiable(), dtype="float32", kind="gradients")
    return 0


def differentiable() -> list[str]:
    """Return the operators that OpInfo differentiates in float32."""
    import torch

    from testing.op_cases import operators

    return [
        name
        for name, op in operators().items()
        if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    ]


if __name__ == "__main__":
    sys.exit(main())
