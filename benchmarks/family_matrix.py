"""Lower and run models of many families, and compare with eager: a table of docs/measurements/models.md.

    python -m benchmarks.family_matrix --json families.json              # all of them; goes on where it stopped
    python -m benchmarks.family_matrix --models 'Mixtral.*|c3d' --output-types tosa
    python -m benchmarks.family_matrix --json families.json --again      # once more what did not pass
    python -m benchmarks.family_matrix --json families.json --write      # renew the page from the file

The models are lowered in a worker process, with a time limit; what ends it is a status of one cell.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.op_matrix import OUTPUT_TYPES, Worker
from benchmarks.rows import DOCS, Row, parser_of, read_rows, renew, write_rows

PAGE = DOCS / "measurements" / "models.md"
RETRIED = ("import", "lower", "contract", "run", "mismatch", "crash", "timeout")


def work() -> None:
    """Answer requests on standard input: a line of JSON for each output type of each model."""
    import gc
    import logging
    import warnings

    import torch

    from testing.family_cases import Exported

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output printed by models apart from answers
    for line in sys.stdin:
        request = json.loads(line)
        model = Exported(request["model"])
        for output_type in request["output_types"]:
            print(json.dumps({"output_type": output_type, **model.lowered(output_type)}), file=answers, flush=True)
        del model
        gc.collect()


def measure(models: Sequence[tuple[str, Sequence[str]]], seconds: float) -> Iterable[Row]:
    """Yield a row for each output type of each model: model, family, output_type, backend, status, reason."""
    from testing.families import FAMILIES

    with tempfile.TemporaryDirectory(prefix="fx-importer-families-", ignore_cleanup_errors=True) as scratch:
        worker = Worker(scratch, seconds, "benchmarks.family_matrix")
        try:
            for name, output_types in models:
                request = {"model": name, "output_types": output_types, "dtype": None}
                for row in worker.ask(request):
                    known = {"model": name, "family": FAMILIES[name].family, "output_type": row["output_type"]}
                    yield known | {key: row.get(key, "") for key in ("backend", "status", "reason")}
        finally:
            worker.stop()


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown, sorted by family: what runs each, or what is in the way."""
    cells = {(row["model"], row["output_type"]): row for row in rows}
    families = {row["model"]: row["family"] for row in rows}
    lines = [f"| family | model | {' | '.join(OUTPUT_TYPES)} |", "|---|---|" + "---|" * len(OUTPUT_TYPES)]
    for name, family in sorted(families.items(), key=lambda each: (each[1], each[0].lower())):
        texts = [_text(cells.get((name, output_type))) for output_type in OUTPUT_TYPES]
        lines.append(f"| {family} | {name} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def _text(row: Row | None) -> str:
    if row is None:
        return ""
    if row["status"] == "pass":
        return row["backend"]
    if row["status"] == "export":
        return "not exported"
    named = re.search(r"'((?:torch|tosa|stablehlo)\.[\w.]+)'", row["reason"])
    reason = f"`{named[1]}`" if named else row["reason"].split(";")[0][:70].replace("|", "/")
    return f"{row['status']}: {reason}"


def summary(rows: Iterable[Row]) -> str:
    """Return the number of models by status and output type."""
    rows = list(rows)
    lines = ["| output type | pass | of | other |", "|---|---|---|---|"]
    for output_type in OUTPUT_TYPES:
        found = Counter(row["status"] for row in rows if row["output_type"] == output_type)
        not_exported = found.pop("export", 0)
        other = ", ".join(f"{status} {count}" for status, count in found.most_common() if status != "pass")
        lines.append(f"| {output_type} | {found['pass']} | {found.total()} | {other}; not exported {not_exported} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each row as it comes; the exit code is 1 if any of them did not pass."""
    parser = parser_of(__doc__, PAGE, seconds=300)
    parser.add_argument("--models", default=".*", help="a regular expression of names")
    parser.add_argument("--output-types", default=",".join(OUTPUT_TYPES), help="separated by commas")
    parser.add_argument("--again", action="store_true", help="run again what did not pass")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work()
        return 0
    rows = {(row["model"], row["output_type"]): row for row in read_rows(options.json)}
    if options.write:
        renew(PAGE, "families", summary(rows.values()) + "\n" + table(list(rows.values())))
        return 0

    from testing.families import FAMILIES

    done = {key for key, row in rows.items() if not (options.again and row["status"] in RETRIED)}
    wanted = [
        (name, [each for each in options.output_types.split(",") if (name, each) not in done])
        for name in FAMILIES
        if re.fullmatch(options.models, name)
    ]
    for row in measure([each for each in wanted if each[1]], options.seconds):
        rows[row["model"], row["output_type"]] = row
        print(f"{row['model']:40} {row['output_type']:18} {row['status']:9} {row['reason'][:120]}", flush=True)
        write_rows(options.json, rows.values())
    print(summary(rows.values()))
    return int(any(row["status"] not in ("pass", "export") for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
