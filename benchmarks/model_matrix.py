"""Model × output type × backend over the zoo, by ``fx-importer matrix``: the table of docs/measurements/models.md.

    python -m benchmarks.model_matrix --json models.json              # all of them; goes on where it stopped
    python -m benchmarks.model_matrix --models lstm,unet --dynamic    # a dynamic batch, run with other sizes
    python -m benchmarks.model_matrix --json models.json --write      # renew the page from the file

What runs is in processes of its own, with a time limit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.rows import DOCS, Row, parser_of, read_rows, renew, write_rows

PAGE = DOCS / "measurements" / "models.md"

COLUMNS = (
    ("torch", "iree"),
    ("linalg-on-tensors", "jit"),
    ("linalg-on-tensors", "iree"),
    ("tosa", "tosa_reference"),
    ("tosa", "jit"),
    ("stablehlo", "stablehlo"),
    ("stablehlo", "jit"),
    ("stablehlo", "xla"),
    ("stablehlo", "iree"),
)
DYNAMIC_COLUMNS = tuple(each for each in COLUMNS if each not in (("tosa", "jit"), ("stablehlo", "jit")))
SIZES = (3, 5)
"""Batches that a dynamic module is run with; it was exported with two."""

INTERPRETERS = ("tosa_reference", "stablehlo")

Cell = Row
"""``{"model", "dynamic", "output_type", "backend", "status", "error", "seconds", "remark"}``"""


def export(name: str, dynamic: bool, folder: Path) -> tuple[Path, Path]:
    """Save the program of the model ``name``, and its input sets."""
    import torch

    from testing.zoo import ZOO

    entry = ZOO[name]
    model, args, kwargs = entry.build()
    program = torch.export.export(model, args, kwargs, dynamic_shapes=entry.dynamic_shapes if dynamic else None)
    torch.export.save(program, folder / "model.pt2")
    sets = [(args, kwargs)]
    if dynamic:
        sets = [(tuple(torch.cat([each] * size)[:size] for each in args), kwargs) for size in SIZES]
    torch.save(sets, folder / "inputs.pt")
    return folder / "model.pt2", folder / "inputs.pt"


def measure(name: str, dynamic: bool, wanted: Sequence[tuple[str, str]], limit: float) -> Iterator[Cell]:
    """Yield the cells of one model: a process for each output type, and one for each interpreter, which is slow."""
    groups: dict[tuple[str, str], list[str]] = {}
    for output_type, backend in wanted:
        groups.setdefault((output_type, backend if backend in INTERPRETERS else ""), []).append(backend)
    with tempfile.TemporaryDirectory(prefix="fx-importer-models-") as folder:
        program, inputs = export(name, dynamic, Path(folder))
        for (output_type, _), backends in groups.items():
            out = Path(folder, "cells.json")
            out.unlink(missing_ok=True)
            command = [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "fx_importer",
                "matrix",
                program,
                "--trust",
                "--inputs",
                inputs,
            ]
            command += ["--output-type", output_type, "--json", out]
            command += [word for backend in backends for word in ("--backend", backend)]
            found, remark = _all(backends, "time-out"), f"over {limit:.0f} s"
            start = time.perf_counter()
            try:
                ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
                if out.exists():
                    (row,) = json.loads(out.read_text())
                    found, remark = row["backends"], "\n".join(row["remarks"])
                else:
                    found, remark = _all(backends, "failed"), ran.stderr[-300:]
            except subprocess.TimeoutExpired:
                pass
            seconds = round(time.perf_counter() - start, 1)
            for backend in backends:
                cell = {"model": name, "dynamic": dynamic, "output_type": output_type, "backend": backend}
                yield cell | found[backend] | {"seconds": seconds, "remark": remark}


def _all(backends: Sequence[str], status: str) -> dict[str, Cell]:
    return {backend: {"status": status, "error": None} for backend in backends}


def table(cells: Sequence[Cell], columns: Sequence[tuple[str, str]]) -> str:
    """Return the cells as a table in Markdown."""
    found = {(each["model"], each["output_type"], each["backend"]): each for each in cells}
    heads = [f"{output_type} → {backend}" for output_type, backend in columns]
    lines = [f"| model | {' | '.join(heads)} |", "|---|" + "---|" * len(columns)]
    for name in dict.fromkeys(each["model"] for each in cells):
        row = [_text(found.get((name, *column))) for column in columns]
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _text(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell["status"] == "passed":
        return f"{cell['error']:.0e}" if cell["error"] else "0"
    if cell["status"] == "mismatch" and cell["error"]:
        return f"mismatch: {cell['error']:.0e}"
    named = re.search(r"operation '([^']+)'", cell["remark"])
    reason = f"`{named[1]}`" if named else cell["remark"].partition("\n")[0][:80]
    return f"{cell['status']}: {reason}" if reason else cell["status"]


def write_page(cells: Sequence[Cell]) -> None:
    """Renew the tables of the page."""
    for name, columns, dynamic in (("static", COLUMNS, False), ("dynamic", DYNAMIC_COLUMNS, True)):
        renew(PAGE, name, table([each for each in cells if each["dynamic"] is dynamic], columns))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each cell; the exit code is 1 if any of them did not pass."""
    from testing.zoo import ZOO

    parser = parser_of(__doc__, PAGE, seconds=600)
    parser.add_argument("--models", help="names, separated by commas; all by default")
    parser.add_argument("--backends", help="names, separated by commas; all by default")
    parser.add_argument("--dynamic", action="store_true", help="with a dynamic batch")
    options = parser.parse_args(arguments)
    cells = read_rows(options.json)
    if options.write:
        write_page(cells)
        return 0
    names = options.models.split(",") if options.models else [*ZOO]
    if options.dynamic:
        names = [name for name in names if ZOO[name].dynamic_shapes is not None]
    columns = DYNAMIC_COLUMNS if options.dynamic else COLUMNS
    if options.backends:
        columns = [column for column in columns if column[1] in options.backends.split(",")]
    keys = ("model", "dynamic", "output_type", "backend")
    done = {tuple(cell[key] for key in keys) for cell in cells if cell["status"] == "passed"}
    for name in names:
        left = [column for column in columns if (name, options.dynamic, *column) not in done]
        for cell in measure(name, options.dynamic, left, options.seconds):
            cells = [each for each in cells if any(each[key] != cell[key] for key in keys)] + [cell]
            print(
                f"{name:24} {cell['output_type']:18} {cell['backend']:15} {cell['seconds']:6.1f} s  {_text(cell)}",
                flush=True,
            )
            write_rows(options.json, cells)
    return int(any(each["status"] != "passed" for each in cells))


if __name__ == "__main__":
    sys.exit(main())
