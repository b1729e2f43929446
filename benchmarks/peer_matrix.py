"""Find what `torch_mlir.fx` lowers and we do not: operators of OpInfo in every dtype, gradients, dynamic sizes, models.

    python -m benchmarks.peer_matrix --json peer.json                      # goes on where it stopped
    python -m benchmarks.peer_matrix --kinds dynamic --dtypes float32 --ops 'linalg\\..*'
    python -m benchmarks.peer_matrix --kinds families
    python -m benchmarks.peer_matrix --json peer.json --again              # what does not pass once more
    python -m benchmarks.peer_matrix --json peer.json --write              # renew docs/measurements/peer.md

Of an operator, the first samples that differ in more than values and sizes are lowered by us, and where ours does not
pass, by the peer. Programs in linalg are run and compared with eager, of both sides; those of the peer in all output
types: ``invalid`` is what the validator of TOSA rejects. After three samples that neither side lowers, the output type
of an operator is left. Each side has a worker process, with a time limit: a native crash is an outcome of one cell.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew, write_rows
from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.worker import Child, RestartingWorker

if TYPE_CHECKING:
    from testing.peer_cases import Request

OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")
DTYPES = ("float32", "int64", "bfloat16", "bool", "complex64", "float64", "float16", "int32", "int8")
PAGE = DOCS / "measurements" / "peer.md"
UNCOUNTED = ("skip", "export")
"""Outcomes of samples that are not compared: random results, and what torch.export rejects."""


class Sides:
    """Answers requests in a worker process for each side."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._workers = [RestartingWorker(lambda: Child("testing.peer_cases:Cells")) for _ in range(2)]

    def ask(self, request: Request) -> Row | None:
        """Return status and reason of a cell; None if there is no such sample."""
        child = self._workers[request.peer].running()
        try:
            outcome = child.ask(request.name, request, self.limits)
        except CrashedError as error:
            status = "timeout" if error.limit else "crash"
            return {"status": status, "reason": f"{child.noted}: {' '.join(str(error).split())[-200:]}"}
        return None if outcome is None else {"status": outcome.status, "reason": outcome.reason}


def measure(sides: Sides, requests: Iterable[dict[str, Any]], wanted: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each sample and output type of the requests: ours, and the peer's where ours does not pass."""
    from testing.peer_cases import Request

    for known in requests:
        left = dict.fromkeys(wanted, 3)
        for sample in range(known["samples"]):
            for output_type in filter(left.get, wanted):
                run = output_type == "linalg-on-tensors"
                ours = sides.ask(Request(**known, sample=sample, output_type=output_type, peer=False, run=run))
                if ours is None:
                    break
                row: Row = {**known, "sample": sample, "output_type": output_type, **ours}
                if ours["status"] not in ("pass", *UNCOUNTED):
                    found = sides.ask(Request(**known, sample=sample, output_type=output_type, peer=True, run=True))
                    row |= {f"peer_{key}": value for key, value in (found or {}).items()}
                    left[output_type] -= not lost(row)
                yield row
            else:
                continue
            break
        yield {**known, "status": "end", "output_type": ""}


def lost(row: Row) -> bool:
    """Return whether the peer passes where we do not, or lowers what we do not lower to something that is valid."""
    theirs, lowered = row.get("peer_status"), row["status"] in ("run", "mismatch")
    return theirs == "pass" or (theirs in ("run", "mismatch") and not lowered)


def counted(rows: Iterable[Row]) -> dict[tuple[str, ...], Counter[str]]:
    """Return the number of cells by outcome, for each kind, dtype and output type."""
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        if row["status"] not in ("end", *UNCOUNTED):
            found = counts.setdefault((row["kind"], row["dtype"], row["output_type"]), Counter())
            found["pass" if row["status"] == "pass" else "lost" if lost(row) else "neither"] += 1
    return counts


def summary(rows: Iterable[Row]) -> str:
    """Return the counts as lines of text."""
    return "\n".join(f"{' '.join(key):42} {dict(found)}" for key, found in counted(rows).items())


def table(rows: Sequence[Row]) -> str:
    """Return the counts as a table: of each output type, cells that pass, are lost, and that neither side passes."""
    names: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if row["status"] not in ("end", *UNCOUNTED):
            names.setdefault((row["kind"], row["dtype"]), set()).add(row["name"])
    counts = counted(rows)
    lines = [f"| kind | dtype | names | {' | '.join(OUTPUT_TYPES)} |", "|---|---|" + "--:|" * (1 + len(OUTPUT_TYPES))]
    for (kind, dtype), found in names.items():
        cells = [counts.get((kind, dtype, output_type), Counter()) for output_type in OUTPUT_TYPES]
        numbers = " | ".join(f"{each['pass']} / {each['lost']} / {each['neither']}" for each in cells)
        lines.append(f"| {kind} | {dtype} | {len(found)} | {numbers} |")
    return "\n".join(["", *lines, "", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print cells that do not pass as they come; the exit code is 1 if the peer lowers one of them."""
    parser = parser_of(__doc__, PAGE, seconds=120)
    parser.add_argument("--kinds", nargs="+", default=["static"], help="static, dynamic, gradients, families")
    parser.add_argument("--ops", default=".*", help="a regular expression of names")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    parser.add_argument("--output-types", nargs="+", default=OUTPUT_TYPES)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--shard", default="0/1", help="this part of that many")
    parser.add_argument("--again", action="store_true", help="run operators again of which a sample does not pass")
    options = parser.parse_args(arguments)
    kept = read_rows(options.json)
    if options.write:
        renew(PAGE, "peer", table(kept))
        return 0
    if options.again:
        failing = {_key(row) for row in kept if row["status"] not in ("pass", "end", *UNCOUNTED)}
        kept = [row for row in kept if _key(row) not in failing or not re.fullmatch(options.ops, row["name"])]
        write_rows(options.json, kept)
    rows = list(kept)
    for row in measure(Sides(Limits(options.seconds)), _requests(options, kept), options.output_types):
        rows.append(row)
        add_row(options.json, row)
        if row["status"] not in ("pass", "end", *UNCOUNTED):
            peer = f"peer {row.get('peer_status', '')}: {row.get('peer_reason', '')[:80]}" if lost(row) else ""
            cell = f"{row['name']} {row['dtype']} {row['kind']} {row['sample']} {row['output_type']}"
            print(f"{cell:60} {row['status']:9} {row['reason'][:120]!r} {peer}", flush=True)
    print(summary(rows))
    return int(any(map(lost, rows)))


def _key(row: Row) -> tuple[str, ...]:
    return row["kind"], row["name"], row["dtype"]


def _requests(options: argparse.Namespace, kept: Iterable[Row]) -> Iterator[dict[str, Any]]:
    from testing.families import FAMILIES
    from testing.op_cases import operators

    done = {_key(row) for row in kept if row["status"] == "end"}
    part, parts = map(int, options.shard.split("/"))
    for kind in options.kinds:
        names = [name for name in (FAMILIES if kind == "families" else operators()) if re.fullmatch(options.ops, name)]
        for dtype in ["float32"] if kind == "families" else options.dtypes:
            for name in names[part::parts]:
                if (kind, name, dtype) not in done:
                    yield {"kind": kind, "name": name, "dtype": dtype, "samples": options.samples}


if __name__ == "__main__":
    sys.exit(main())
