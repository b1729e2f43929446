"""Write docs/operators.md: every operator by output type, dtype and static or dynamic sizes, and every model.

    python -m benchmarks.op_table

It runs nothing. Operators that do not pass come from op_coverage.md, op_dtypes.md and op_dynamic.md in
docs/measurements. The dtypes that an operator takes come from OpInfo; operators that were not counted (random, or
rejected by torch.export) from op_coverage.md and op_uncounted.json. Totals are compared with those pages.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.rows import DOCS, renew
from testing.op_cases import dtype_for, operators

PAGE = DOCS / "operators.md"
MEASUREMENTS = DOCS / "measurements"
OUTPUT_TYPES: tuple[str, ...] = ("linalg-on-tensors", "tosa", "stablehlo")
DTYPES = ("bfloat16", "float16", "int32", "int64", "bool", "complex64")
SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int32": "i32", "int64": "i64", "complex64": "c64"}
PASS, NONE = "✓", "–"
BACKENDS = ("jit", "xla", "tosa_reference")
"""Cells of models that pass name the backend that ran them."""

Status = dict[str, str]
"""By output type: ``pass``, or the stage that stopped."""


def rows_of(page: Path) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables of ``page``."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "|---")):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def failures() -> dict[tuple[str, str], Status]:
    """Return the rows of operators that do not pass, by operator and column: a dtype, ``first`` or ``dynamic``."""
    found: dict[tuple[str, str], Status] = {}
    for column, page in (("first", "op_coverage.md"), ("dynamic", "op_dynamic.md")):
        for operator, *cells in rows_of(MEASUREMENTS / page):
            if len(cells) == 4 and operator != "operator":
                found[operator, column] = dict(zip(OUTPUT_TYPES, cells, strict=False))
    for operator, dtypes, *cells in rows_of(MEASUREMENTS / "op_dtypes.md"):
        if len(cells) == 4 and operator != "operator":
            for dtype in dtypes.split(", "):
                found[operator, dtype] = dict(zip(OUTPUT_TYPES, cells, strict=False))
    return found


def statuses() -> dict[str, dict[str, Status]]:
    """Return the status of each operator: by ``first`` (its first dtype), each other dtype, and ``dynamic``."""
    text = (MEASUREMENTS / "op_coverage.md").read_text(encoding="utf-8")
    uncounted = {
        name for line in re.findall(r"^Not counted: .*$", text, re.M) for name in re.findall(r"`([^`]+)`", line)
    }
    others: dict[str, list[str]] = json.loads(Path(__file__).with_name("op_uncounted.json").read_text())
    failed = failures()
    result: dict[str, dict[str, Status]] = defaultdict(dict)
    for name, info in operators().items():
        columns = ["first", *(dtype for dtype in DTYPES if getattr(torch, dtype) in info.dtypes), "dynamic"]
        for column in columns:
            if name not in others.get(column, ()) and (column == "dynamic" or name not in uncounted):
                passes = dict.fromkeys(OUTPUT_TYPES, "pass")
                result[name][column] = failed.get((name, column), passes)
    return result


def totals(found: dict[str, dict[str, Status]], column: str) -> tuple[int, list[int]]:
    """Return how many operators were counted in ``column``, and how many pass by output type."""
    counted = [columns[column] for columns in found.values() if column in columns]
    return len(counted), [sum(status[each] == "pass" for status in counted) for each in OUTPUT_TYPES]


def recorded(column: str) -> tuple[int, list[int]]:
    """Return the totals on the page that ``column`` comes from."""
    if column in DTYPES:
        row = next(row for row in rows_of(MEASUREMENTS / "op_dtypes.md") if row[0] == f"`{column}`")
        pairs = [re.findall(r"\d+", cell)[:2] for cell in row[2:]]
    else:
        page = MEASUREMENTS / {"first": "op_coverage.md", "dynamic": "op_dynamic.md"}[column]
        pairs = re.findall(r"^(?:linalg-on-tensors|tosa|stablehlo): (\d+) of (\d+)", page.read_text(), re.M)
    return int(pairs[0][1]), [int(passed) for passed, _ in pairs]


def table(found: dict[str, dict[str, Status]]) -> str:
    """Return a row per operator: dtypes, and for each output type the static and the dynamic result."""
    lines = ["| operator | dtypes | linalg | dynamic | tosa | dynamic | stablehlo | dynamic |", "|" + "---|" * 8]
    for name, info in sorted(operators().items()):
        columns = found.get(name, {})
        first = str(dtype_for(info)).removeprefix("torch.")
        static = {SHORT.get(first if key == "first" else key, key): columns[key] for key in columns if key != "dynamic"}
        cells = [" ".join(static) or "not counted"]
        for output_type in OUTPUT_TYPES:
            stopped: dict[str, list[str]] = defaultdict(list)
            for dtype, status in static.items():
                if status[output_type] != "pass":
                    stopped[status[output_type]].append(dtype)
            if not static:
                cells.append(NONE)
            elif not stopped:
                cells.append(PASS)
            elif sum(map(len, stopped.values())) == len(static):
                cells.append(", ".join(stopped))
            else:
                cells.append(
                    f"{PASS} but " + ", ".join(f"{' '.join(which)}: {stage}" for stage, which in stopped.items())
                )
            dynamic = columns.get("dynamic")
            cells.append(NONE if dynamic is None else PASS if dynamic[output_type] == "pass" else dynamic[output_type])
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def models() -> str:
    """Return a row per model of docs/measurements/models.md: the zoo's, and those of other families."""
    text = (MEASUREMENTS / "models.md").read_text(encoding="utf-8")
    lines = ["| model | linalg | tosa | stablehlo | dynamic batch |", "|" + "---|" * 5]

    def section(name: str) -> list[list[str]]:
        part = text.partition(f"<!-- begin {name} -->")[2].partition("<!-- end")[0]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:2] == "| "]

    (heads, *static), (_, *dynamic) = section("static"), section("dynamic")
    with_batch = {row[0] for row in dynamic}
    for row in static:
        cells = []
        for output_type in OUTPUT_TYPES:
            run = [cell for head, cell in zip(heads, row, strict=True) if head.startswith(output_type) and cell]
            fine = any(re.fullmatch(r"[\d.e-]+", cell) for cell in run)
            cells.append(PASS if fine else run[0].partition(":")[0] if run else NONE)
        lines.append(f"| `{row[0]}` | {' | '.join(cells)} | {PASS if row[0] in with_batch else NONE} |")
    for row in section("families"):
        if len(row) == 5 and row[0] != "family" and row[2] not in ("---", "of"):
            cells = [PASS if cell.startswith(BACKENDS) else cell.partition(":")[0] or NONE for cell in row[2:]]
            lines.append(f"| {row[1]} | {' | '.join(cells)} | {NONE} |")
    return "\n".join(lines)


if __name__ == "__main__":
    found = statuses()
    for column in ("first", *DTYPES, "dynamic"):
        counted, was = totals(found, column), recorded(column)
        print(column, counted, "as recorded" if counted == was else f"recorded: {was}")
    renew(PAGE, "operators", f"\n{table(found)}\n\n")
    renew(PAGE, "models", f"\n{models()}\n\n")
