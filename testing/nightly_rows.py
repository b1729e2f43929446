"""The rows of tests that `make test` leaves to `make slow`, by the CPU time that they take.

python -m testing.nightly_rows out/rows.tsv            # writes tests/nightly_rows.txt from these times
python -m testing.nightly_rows out/rows.tsv --measure  # first runs all rows that are not marked slow: an hour

Of the rows of a test, the one that takes least stays; of the others go those that take longer than `SECONDS`. As a
plugin of pytest, this module measures rows, with the processes that are forked for them.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests" / "nightly_rows.txt"
SECONDS = 0.2
LIMITS = {"tests/test_lit.py": 1.0, "tests/test_docs.py": math.inf}
"""Seconds for other files: rows of the first are programs of their own, and ids of the second have lines of pages."""
TIMES = "FX_IMPORTER_ROW_TIMES"
"""The variable that names the file for the times. While it is set, no row of the list is slow."""


def listed_rows() -> frozenset[str]:
    """Return the ids of the rows in the list."""
    return frozenset() if TIMES in os.environ else frozenset(ROWS.read_text().splitlines())


def missing(rows: Collection[str], collected: Collection[str]) -> list[str]:
    """Return the ``rows`` that are not among the ids ``collected``, in files with collected tests."""
    files = {row.partition("::")[0] for row in collected}
    return sorted(row for row in rows if row not in collected and row.partition("::")[0] in files)


def nightly(seconds: Mapping[str, float]) -> list[str]:
    """Return the ids of rows to leave out, sorted, for CPU seconds by id."""
    tests: defaultdict[str, list[str]] = defaultdict(list)
    for row in seconds:
        test, bracket, _ = row.partition("[")
        if bracket:
            tests[test].append(row)
    out: list[str] = []
    for test, rows in tests.items():
        limit = LIMITS.get(test.partition("::")[0], SECONDS)
        stays = min(rows, key=lambda row: (seconds[row], row))
        out += [row for row in rows if row != stays and seconds[row] > limit]
    return sorted(out)


def read_times(lines: Iterable[str]) -> dict[str, float]:
    """Return CPU seconds by id, for lines of seconds, a tab and an id; the least of several."""
    seconds: dict[str, float] = {}
    for line in lines:
        number, _, row = line.rstrip("\n").partition("\t")
        seconds[row] = min(float(number), seconds.get(row, math.inf))
    return seconds


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process, of the server that forks processes, and of their children."""
    from tests.fork_server import the_server

    if (server := the_server().pid) is None:
        return sum(os.times()[:4])
    status = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return sum(os.times()[:4]) + sum(map(int, status[11:15])) / os.sysconf("SC_CLK_TCK")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Generator[None, object, object]:
    before = _cpu_seconds()
    result = yield
    with open(os.environ[TIMES], "a", encoding="utf-8") as file:  # noqa: PTH123 - appended to at once
        file.write(f"{_cpu_seconds() - before:.2f}\t{item.nodeid}\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("times", type=Path, help="lines of CPU seconds, a tab, and the id of a row")
    parser.add_argument("--measure", action="store_true", help="run the tests in one process, and append to the file")
    arguments = parser.parse_args()
    if arguments.measure:
        environment = {**os.environ, TIMES: str(arguments.times.resolve())}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "testing.nightly_rows"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
    seconds = read_times(arguments.times.read_text().splitlines())
    rows = nightly(seconds)
    ROWS.write_text("".join(f"{row}\n" for row in rows))
    total, left = sum(seconds.values()), sum(seconds[row] for row in rows)
    print(f"{len(rows)} of {len(seconds)} rows are slow, with {left:.0f} of {total:.0f} CPU seconds")


if __name__ == "__main__":
    main()
