"""docs/measurements/op_dtypes.md, the page of operators in further dtypes: writes it, and reads its statuses.

python -m benchmarks.op_matrix --dtype int64 --samples 1 --shard 0/4 --json int64.json    # and so on
python -m benchmarks.op_dtypes int64.json bool.json ...                                   # renew the page

A dtype that no file has keeps its statuses on the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.op_matrix import OUTPUT_TYPES
from benchmarks.op_reasons import reason
from benchmarks.rows import DOCS, Row, read_rows

PAGE = DOCS / "measurements" / "op_dtypes.md"

DTYPES = ("bfloat16", "float16", "int32", "int64", "bool", "complex64")

Statuses = dict[str, str]
"""By output type."""

_UNCOUNTED = ("skip", "export")


def page(rows: Iterable[Row], operators: int) -> str:
    """Return the page: counts by dtype and output type, and what does not pass, with its reason.

    ``operators`` is how many there are in all. A dtype that has no rows keeps what the page says of it.
    """
    found = _by_dtype(rows)
    failing, before = _failing(found), PAGE.read_text(encoding="utf-8").splitlines()
    for (name, dtype), statuses in _recorded(before).items():
        if not found[dtype]:
            failing.setdefault((name, tuple(statuses[kind] for kind in OUTPUT_TYPES)), []).append(dtype)
    return "\n".join(
        [
            "# Operators in other dtypes",
            "",
            "The [matrix of operators](op_coverage.md) for other dtypes, where eager takes them: the first sample,",
            "lowered, run on the backend of the output type, and compared with eager. *Looked at* says how many of the",
            f"{operators} operators of PyTorch's database there were. The other columns say how many of them pass, of",
            "those that eager runs in this dtype and `torch.export` takes.",
            "`python -m benchmarks.op_dtypes` makes this page; a selection of it runs with the tests.",
            "",
            _line("dtype", ["looked at", *OUTPUT_TYPES]),
            _line("---", ["---"] * (1 + len(OUTPUT_TYPES))),
            *(
                _line(f"`{dtype}`", [str(len(found[dtype])), *_counts(found[dtype])])
                if found[dtype]
                else next(line for line in before if line.startswith(f"| `{dtype}` |"))
                for dtype in DTYPES
            ),
            "",
            "Operators that do not pass, the stage that stopped them, and the reason:",
            "",
            _line("operator", ["dtypes", *OUTPUT_TYPES, "why"]),
            _line("---", ["---"] * (2 + len(OUTPUT_TYPES))),
            *(
                _line(name, [", ".join(sorted(dtypes, key=DTYPES.index)), *statuses, reason(name, dtypes)])
                for (name, statuses), dtypes in sorted(failing.items())
            ),
            "",
        ]
    )


def _by_dtype(rows: Iterable[Row]) -> dict[str, dict[str, Statuses]]:
    """Return the statuses by dtype and operator, of operators that were run to every output type."""
    found: dict[str, dict[str, Statuses]] = {dtype: {} for dtype in DTYPES}
    for row in rows:
        found[row["dtype"]].setdefault(row["op"], {})[row["output_type"]] = row["status"]
    return {
        dtype: {name: each for name, each in operators.items() if len(each) == len(OUTPUT_TYPES)}
        for dtype, operators in found.items()
    }


def _counts(found: dict[str, Statuses]) -> list[str]:
    texts = []
    for kind in OUTPUT_TYPES:
        tried = [each[kind] for each in found.values() if each[kind] not in _UNCOUNTED]
        texts.append(f"{tried.count('pass')} of {len(tried)} ({tried.count('pass') / max(len(tried), 1):.1%})")
    return texts


def _failing(found: dict[str, dict[str, Statuses]]) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """Return the dtypes that have the same statuses, not all ``pass``, by the operator and these."""
    failing: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for dtype, operators in found.items():
        for name, statuses in operators.items():
            if not set(statuses.values()) <= {"pass", *_UNCOUNTED}:
                failing.setdefault((name, tuple(statuses[kind] for kind in OUTPUT_TYPES)), []).append(dtype)
    return failing


def _line(name: str, cells: Iterable[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def recorded() -> dict[tuple[str, str, str], str]:
    """Return what the page says of operators that do not pass: a status for each operator, dtype and output type."""
    rows = _recorded(PAGE.read_text(encoding="utf-8").splitlines())
    return {(*key, kind): status for key, statuses in rows.items() for kind, status in statuses.items()}


def _recorded(lines: Iterable[str]) -> dict[tuple[str, str], Statuses]:
    found: dict[tuple[str, str], Statuses] = {}
    for line in lines:
        name, *cells = [cell.strip() for cell in line.split("|")[1:-1]] or [""]
        if len(cells) == 2 + len(OUTPUT_TYPES) and name not in ("operator", "---"):
            for dtype in cells[0].split(", "):
                found[name, dtype] = dict(zip(OUTPUT_TYPES, cells[1:-1], strict=True))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page from files of rows."""
    from testing.op_cases import operators

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="what op_matrix wrote with --json")
    rows = [row for path in parser.parse_args(arguments).files for row in read_rows(path)]
    PAGE.write_text(page(rows, len(operators())), encoding="utf-8")


if __name__ == "__main__":
    main()
