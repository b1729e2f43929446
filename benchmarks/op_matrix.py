"""Lower and run OpInfo's operators × output types, and compare with eager.

    python -m benchmarks.op_matrix --json ops.json                   # everything; goes on where it stopped
    python -m benchmarks.op_matrix --ops 'linalg\\..*' --output-types tosa
    python -m benchmarks.op_matrix --json ops.json --write           # renew measurements/op_coverage.md

An operator passes if all of its first samples do. Each runs in a worker process, with a time limit: a native crash is a
status of one case, and the worker is started again.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.op_reasons import reason
from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, write_rows

OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")
PAGE = DOCS / "measurements" / "op_coverage.md"


def work() -> None:
    """Answer requests on standard input: a line of JSON for each output type of each operator."""
    import warnings

    import torch

    from testing.gradient_cases import ExportedGradients
    from testing.op_cases import Exported, ExportedDynamic, Outcome, dtype_for, operators

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output printed by operators apart from answers
    known = operators()
    for line in sys.stdin:
        request = json.loads(line)
        name = request["op"]
        dtype = getattr(torch, request["dtype"]) if request["dtype"] else dtype_for(known[name])
        if dtype is None or dtype not in known[name].dtypes:
            exported, nothing = None, Outcome("skip", "it does not take the dtype")
        else:
            cases = {"gradients": ExportedGradients, "dynamic": ExportedDynamic}.get(request.get("kind", ""), Exported)
            exported = cases(name, dtype, request["samples"])
            nothing = exported.outcome
        for output_type in request["output_types"]:
            if exported is None or (nothing is not None and not exported.ready):
                outcome = nothing or Outcome("skip")
            else:
                outcome = exported.lowered(output_type)
            row = {"output_type": output_type, **vars(outcome), "dtype": str(dtype).removeprefix("torch.")}
            print(json.dumps(row), file=answers, flush=True)


class Worker:
    """A worker process, started again whenever it ends."""

    def __init__(self, scratch: str, seconds: float, module: str = "benchmarks.op_matrix"):
        self.scratch, self.seconds, self.module = scratch, seconds, module
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any]) -> Iterable[Row]:
        """Yield a row for each output type of ``request``."""
        left = list(request["output_types"])
        while left:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({**request, "output_types": left}) + "\n")
            process.stdin.flush()
            while left:
                timer = threading.Timer(self.seconds, process.kill)
                timer.start()
                line = process.stdout.readline()
                late = not timer.is_alive()
                timer.cancel()
                if not line:
                    yield {**self._ended(process, late), "output_type": left.pop(0), "dtype": request["dtype"] or ""}
                    break
                row = json.loads(line)
                left.remove(row["output_type"])
                yield row

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()  # closes the pipes too

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", self.module, "--work"]
            environment = os.environ | {"TMPDIR": self.scratch, "OMP_NUM_THREADS": "1"}
            pipe = subprocess.PIPE
            with Path(self.scratch, "stderr.txt").open("a") as log:
                self._process = subprocess.Popen(
                    command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=log
                )
        return self._process

    def _ended(self, process: subprocess.Popen[str], late: bool) -> Row:
        process.communicate()  # closes the pipes too
        code = process.returncode
        self._process = None
        if late:
            return {"status": "timeout", "reason": f"after {self.seconds:.0f} s", "sample": 0}
        return {"status": "crash", "reason": f"exit code {code}", "sample": 0}


def measure(requests: Sequence[dict[str, Any]], workers: int, seconds: float) -> Iterable[Row]:
    """Yield the rows of ``requests`` as they come: op, dtype, output_type, status, reason, sample."""
    waiting: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
    for request in [*requests, *[None] * workers]:
        waiting.put(request)

    def run() -> None:
        with tempfile.TemporaryDirectory(prefix="fx-importer-ops-", ignore_cleanup_errors=True) as scratch:
            worker = Worker(scratch, seconds)
            try:
                while (request := waiting.get()) is not None:
                    for row in worker.ask(request):
                        rows.put({"op": request["op"], **row})
            finally:
                worker.stop()
                rows.put(None)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    ended = 0
    while ended < workers:
        row = rows.get()
        if row is None:
            ended += 1
        else:
            yield row


def summary(rows: Iterable[Row]) -> str:
    """Return the number of operators by status and output type, without those that torch.export rejects."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row["output_type"], Counter())[row["status"]] += 1
    lines = []
    for kind, found in counts.items():
        tried = sum(found.values()) - found["skip"] - found["export"]
        others = ", ".join(f"{number} {status}" for status, number in found.most_common() if status != "pass")
        lines.append(f"{kind}: {found['pass']} of {tried} ({found['pass'] / max(tried, 1):.1%}); {others}")
    return "\n".join(lines)


def page(rows: Sequence[Row]) -> str:
    """Return docs/measurements/op_coverage.md: the counts, and every operator that does not pass with its reasons."""
    by_op: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_op.setdefault(row["op"], {})[row["output_type"]] = row
    left_out = {
        status: ", ".join(f"`{name}`" for name, found in sorted(by_op.items()) if _left_out(found) == status)
        for status in _LEFT_OUT
    }
    failing = {name: found for name, found in sorted(by_op.items()) if not _left_out(found) and not _passes(found)}
    return "\n".join(
        [
            "# Operators",
            "",
            "PyTorch's own operator database, OpInfo: up to three samples of each operator, exported, lowered, run",
            "on the backend of the output type (StableHLO on XLA), and compared with eager.",
            "`python -m benchmarks.op_matrix` makes this page; a selection of it runs with the tests.",
            "",
            "```text",
            summary(rows),
            "```",
            "",
            "Operators that do not pass, the stage that stopped them, and the reason:",
            "",
            _line("operator", [*OUTPUT_TYPES, "why"]),
            _line("---", ["---"] * (1 + len(OUTPUT_TYPES))),
            *(
                _line(name, [*(found[kind]["status"] for kind in OUTPUT_TYPES), reason(name)])
                for name, found in failing.items()
            ),
            "",
            *(line for status, text in _LEFT_OUT.items() for line in (f"{text}: {left_out[status]}.", "")),
        ]
    )


_LEFT_OUT = {
    "skip": "Not counted: random, or without samples that eager runs",
    "export": "Not counted: rejected by `torch.export`",
}


def _line(name: str, cells: Iterable[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _left_out(found: dict[str, Row]) -> str:
    """Return the status of an operator that does not count; nothing of others."""
    (status, *others) = {row["status"] for row in found.values()}
    return status if status in _LEFT_OUT and not others else ""


def _passes(found: dict[str, Row]) -> bool:
    return all(row["status"] == "pass" for row in found.values())


def recorded() -> dict[tuple[str, str], str]:
    """Return the statuses on the page of operators that do not pass, by operator and output type."""
    found: dict[tuple[str, str], str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        for status, text in _LEFT_OUT.items():
            if line.startswith(text):
                names = re.findall(r"`([^`]+)`", line.removeprefix(text))
                found |= {(name, kind): status for name in names for kind in OUTPUT_TYPES}
        name, *cells = [cell.strip() for cell in line.split("|")[1:-1]] or [""]
        if len(cells) == 1 + len(OUTPUT_TYPES) and name not in ("operator", "---"):
            found |= {(name, kind): status for kind, status in zip(OUTPUT_TYPES, cells[:-1], strict=True)}
    return found


def parser_of_operators(doc: str | None, page: Path) -> argparse.ArgumentParser:
    """Return a parser of what `run` reads."""
    parser = parser_of(doc, page, seconds=120)
    parser.add_argument("--ops", default=".*", help="a regular expression that the whole name matches")
    parser.add_argument("--output-types", default=",".join(OUTPUT_TYPES), help="separated by commas")
    parser.add_argument("--samples", type=int, default=3, help="how many of each operator")
    parser.add_argument("--shard", default="0/1", help="this part of that many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", default="", help="statuses, separated by commas, that are run again all the same")
    return parser


def run(options: argparse.Namespace, operators: Iterable[str], **request: Any) -> None:
    """Run the requests that the file lacks; print rows that do not pass, and the counts. ``request`` is in each."""
    again = set(filter(None, options.again.split(",")))
    kept = [
        row for row in read_rows(options.json) if row["status"] not in again or not re.fullmatch(options.ops, row["op"])
    ]
    write_rows(options.json, kept)
    done = {(row["op"], row["output_type"]) for row in kept}
    part, parts = map(int, options.shard.split("/"))
    requests = [
        {"op": name, "output_types": left, "samples": options.samples, **request}
        for name in [name for name in operators if re.fullmatch(options.ops, name)][part::parts]
        if (left := [kind for kind in options.output_types.split(",") if (name, kind) not in done])
    ]
    fresh: list[Row] = []
    for row in measure(requests, options.workers, options.seconds):
        fresh.append(row)
        if row["status"] not in ("pass", "skip", "export"):
            print(f"{row['op']:40} {row['output_type']:18} {row['status']:9} {row['reason'][:140]}", flush=True)
        add_row(options.json, row)
    print(summary([*kept, *fresh]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of_operators(__doc__, PAGE)
    parser.add_argument("--dtype", default="", help="instead of float32, or what the operator has instead")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work()
    elif options.write:
        PAGE.write_text(page(read_rows(options.json)), encoding="utf-8")
    else:
        from testing.op_cases import operators

        run(options, operators(), dtype=options.dtype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
