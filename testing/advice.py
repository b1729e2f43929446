"""Follow the advice of failed lowerings: the program has to lower with every suggestion after ``try:``.

    python -m testing.advice --programs 300           # until 300 programs have failed; exit code 1 if one was false
    python -m testing.advice --programs 40 --seed 7 --json rows.jsonl
    python -m testing.advice --seed 7 --index 12      # one program, with its error

A program is an operator that some output type lacks among others that all have, or one of OpInfo's, with a random
dtype, dynamic sizes, options and output type. It is the same whenever seed and index are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.worker import Child, RestartingWorker

LIMITS = Limits(600.0, 8 * 2**30)
"""For one program, with everything that is tried and followed."""


@dataclass(frozen=True)
class Followed:
    """A suggestion that was followed."""

    text: str
    kind: str
    """The option or the input that it changes."""
    holds: bool
    why: str = ""
    """The error, if the program does not lower."""


@dataclass(frozen=True)
class Row:
    """What became of a program."""

    index: int
    program: str
    outcome: str
    """``lowers``, or the type of the error."""
    followed: tuple[Followed, ...] = ()
    error: str = ""


def rows(seed: int, indices: Iterator[int]) -> Iterator[Row]:
    """Yield what becomes of each program; a death of the worker is an outcome too."""
    worker = RestartingWorker(lambda: Child("testing.advising.followers:Follower"))
    for index in indices:
        try:
            yield worker.running().ask("the program", (seed, index), LIMITS)
        except CrashedError as error:
            yield Row(index, "", "native death" if error.signal else "time limit", error=str(error))


def summary(found: Sequence[Row], seconds: float) -> str:
    """Return the totals: programs by outcome, and suggestions by kind."""
    failing = [row for row in found if row.outcome != "lowers"]
    followed = [each for row in failing for each in row.followed]
    outcomes = Counter(row.outcome for row in found)
    kinds = Counter(each.kind for each in followed)
    false = Counter(each.kind for each in followed if not each.holds)
    wrong = sum(false.values())
    lines = [
        f"{len(found)} programs in {seconds:.0f} s: " + ", ".join(f"{n} {kind}" for kind, n in outcomes.most_common()),
        f"{len(failing)} fail, {sum(not row.followed for row in failing)} of them without a suggestion",
        f"{len(followed)} suggestions followed: {len(followed) - wrong} true, {wrong} false",
    ]
    lines += [f"  {kind:22} {count:5} followed {false[kind]:5} false" for kind, count in kinds.most_common()]
    return "\n".join(lines)


def main() -> int:
    """Follow the advice of random programs; return 1 if any of it is false, or a process died."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=300, help="the number of programs that fail")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--index", type=int, help="only this program")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time limit for all")
    parser.add_argument("--json", type=Path, help="a file for a line of each program that fails")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    start, found, failing = time.monotonic(), [], 0
    indices = itertools.count() if arguments.index is None else iter([arguments.index])
    for row in rows(arguments.seed, indices):
        found.append(row)
        failing += row.outcome != "lowers"
        if row.outcome != "lowers" and arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
        for each in row.followed:
            if not each.holds:
                print(f"FALSE {row.index} {row.program}: {each.text}\n  {each.why}", flush=True)
        if arguments.index is not None:
            print(row.program, row.error, *row.followed, sep="\n")
        if failing >= arguments.programs or time.monotonic() - start > arguments.seconds:
            break
    print(summary(found, time.monotonic() - start))
    bad = any(not each.holds for row in found for each in row.followed)
    return int(bad or any(row.outcome in ("native death", "time limit") for row in found))


if __name__ == "__main__":
    sys.exit(main())
