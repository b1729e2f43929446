"""Put the rows of `benchmarks.gpu.run` on docs/measurements/gpu.md: tables for each device and commit.

python -m benchmarks.gpu.page rows.jsonl --date "27 November 2026"
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.run import Row, read_rows
from benchmarks.rows import DOCS

PAGE = DOCS / "measurements" / "gpu.md"
COLUMNS = {
    "eager": "eager",
    "inductor": "Inductor",
    "inductor_graphs": "Inductor, graphs",
    "jax": "jax's own",
    "xla": "ours on XLA",
    "iree": "ours on IREE",
}


def section(rows: Sequence[Row], date: str) -> str:
    """Return the tables of one device and commit."""
    first = next(row for row in rows if "device" in row)
    lines = [
        f"## {first['device']}, commit {first['commit']}, {date}",
        "",
        f"PyTorch {first['torch']}, jax {first['jax']}, Python {first['python']}. Milliseconds of one call, the median "
        "of nine rounds in which the programs take turns. Below, the relative error of each from eager in float64.",
        "",
        _table(rows, "ms", lambda value: f"{value:.3g}"),
        "",
        *_means(rows),
        "",
        _table(rows, "error", lambda value: f"{value:.0e}"),
        "",
        "MiB of temporary buffers and outputs; copies from and to the host in one call, by PyTorch's profiler.",
        "",
        _memory(rows),
        "",
    ]
    wrong = [
        f"* {_name(row)}, {COLUMNS[program]}: {one['error']:.0e}"
        for row in rows
        for program, one in row.get("programs", {}).items()
        if one.get("error", 0) > max(0.05, 10 * row["programs"]["eager"].get("error", 0))
    ]
    lines += ["Wrong numbers, more than 0.05 from eager in float64:", "", *wrong, ""] if wrong else []
    if failed := [row for row in rows if "failed" in row]:
        lines += [*(f"* {_name(row)} failed: {row['failed']}" for row in failed), ""]
    parts = [
        f"* {_name(row)}, {COLUMNS[program]}: {one['failed'].splitlines()[0]}"
        for row in rows
        for program, one in row.get("programs", {}).items()
        if "failed" in one
    ]
    return "\n".join(lines + (["Failures:", "", *parts, ""] if parts else []))


def _name(row: Row) -> str:
    return f"{row['model']}, {row['dtype']}"


def _table(rows: Sequence[Row], field: str, text: object) -> str:
    assert callable(text)
    lines = ["| | " + " | ".join(COLUMNS.values()) + " |", "|---|" + "---|" * len(COLUMNS)]
    for row in rows:
        if "programs" in row:
            cells = [row["programs"].get(program, {}) for program in COLUMNS]
            texts = [
                str(text(cell[field])) if field in cell else "fails" if "failed" in cell else "—" for cell in cells
            ]
            lines.append(f"| {_name(row)} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _memory(rows: Sequence[Row]) -> str:
    lines = ["| | eager, MiB | ours on XLA, MiB | copies, eager | copies, ours |", "|---|---|---|---|---|"]
    for row in rows:
        if "programs" in row:
            pair = [row["programs"].get(program, {}) for program in ("eager", "xla")]
            sizes = [f"{cell['bytes'] / 2**20:.4g}" if "bytes" in cell else "—" for cell in pair]
            lines.append(
                f"| {_name(row)} | " + " | ".join([*sizes, *(str(c.get("host_copies", "—")) for c in pair)]) + " |"
            )
    return "\n".join(lines)


def _means(rows: Sequence[Row]) -> list[str]:
    """Return sentences: the time of another program divided by that of our best, in the geometric mean of models."""
    found: list[str] = []
    for other in ("eager", "inductor", "inductor_graphs", "jax"):
        ratios: list[float] = []
        for row in rows:
            programs = row.get("programs", {})
            ours = [programs[each]["ms"] for each in ("xla", "iree") if "ms" in programs.get(each, {})]
            if row["model"] != "addition" and ours and "ms" in programs.get(other, {}):
                ratios.append(programs[other]["ms"] / min(ours))
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            found.append(
                f"* {COLUMNS[other]} takes {mean:.2f} times as long as the best of ours (mean of {len(ratios)})."
            )
    return found


def main() -> None:
    """Write the page: sections of other devices and commits stay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--date", required=True)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    text = section(read_rows(arguments.rows), arguments.date)
    heading = text.splitlines()[0]
    intro, *old = arguments.page.read_text(encoding="utf-8").split("\n## ")
    kept = [f"## {each}" for each in old if f"## {each}".splitlines()[0] != heading]
    arguments.page.write_text(
        "\n".join([intro.rstrip("\n") + "\n", *(each.rstrip("\n") + "\n" for each in [text, *kept])])
    )


if __name__ == "__main__":
    main()
