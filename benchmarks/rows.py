"""Rows of a benchmark: in a file of JSON lines, from which a run resumes, and as tables between markers of a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"

Row = dict[str, Any]


def parser_of(doc: str | None, page: Path, *, seconds: float = 0) -> argparse.ArgumentParser:
    """Return a parser that knows the file and the page; and a time limit for one cell, if the default is given."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file of JSON lines; what it holds already is not run again")
    parser.add_argument("--write", action="store_true", help=f"renew {page.name} from the file; run nothing")
    if seconds:
        parser.add_argument("--seconds", type=float, default=seconds, help="time limit for one cell")
    return parser


def read_rows(path: Path | None) -> list[Row]:
    """Return the rows of a file; none if there is no such file."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path | None, rows: Iterable[Row]) -> None:
    """Make ``rows`` those of the file, if there is one."""
    if path is not None:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def add_row(path: Path | None, row: Row) -> None:
    """Add a row to the file, if there is one."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def renew(page: Path, section: str, text: str) -> None:
    """Put ``text`` between the marks of ``section`` on ``page``."""
    before, _, after = _parted(page, section)
    page.write_text(before + text + after, encoding="utf-8")


def section_of(page: Path, section: str) -> str:
    """Return what is between the marks of ``section`` on ``page``."""
    return _parted(page, section)[1]


def _parted(page: Path, section: str) -> tuple[str, str, str]:
    """Return what is before, between and behind; the marks are not between."""
    begin, end = f"<!-- begin {section} -->\n", f"<!-- end {section} -->\n"
    before, begin, rest = page.read_text(encoding="utf-8").partition(begin)
    between, end, after = rest.partition(end)
    assert end, f"{page} has no place for {section}"
    return before + begin, between, end + after
