"""What single passes changed, as differences of text."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher

_VALUE = re.compile(r"%[\w#:]+")
_CONTEXT = 3
_MOST_ROWS = 3000
"""Rows of a difference beyond which it is cut off."""
_MOST_EDITS = 1000
"""Inserted and removed rows beyond which the rest counts as replaced."""


@dataclass(frozen=True)
class PassChange:
    """A pass, and what it changed."""

    stage: int
    """Number of the stage in the trace."""
    name: str
    operations: int
    """Operations after it."""
    hunks: tuple[tuple[int, int, tuple[str, ...]], ...]
    """First rows in the texts before and after, from 0, and rows with a sign: ``-``, ``+`` or a space."""


def hunks_between(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield the hunks of `PassChange`: lines that differ in more than the numbers of values, with lines around them."""
    old, new = ([_VALUE.sub("%", line) for line in lines] for lines in (before, after))
    left = _MOST_ROWS
    for group in _Matcher(old, new).get_grouped_opcodes(_CONTEXT):
        rows: list[str] = []
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [f" {line}" for line in after[j1:j2]]
            else:
                rows += [f"-{line}" for line in before[i1:i2]] + [f"+{line}" for line in after[j1:j2]]
        if left <= 0:
            return
        yield group[0][1], group[0][3], tuple(rows[:left])
        left -= len(rows)


class _Matcher(SequenceMatcher[str]):
    """Finds the fewest edits by Myers' algorithm: `difflib`'s own takes a minute where many lines are equal."""

    def __init__(self, old: Sequence[str], new: Sequence[str]):
        super().__init__(None, old, new)
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[Match]:
        old, new = self._old, self._new
        history = [array("l")]
        for edits in range(_MOST_EDITS + 1):
            rows = array("l", bytes(array("l").itemsize * (2 * edits + 3)))
            for diagonal in range(-edits, edits + 1, 2):
                row, _ = _entry(history[edits], edits, diagonal)
                while row < len(old) and row - diagonal < len(new) and old[row] == new[row - diagonal]:
                    row += 1
                rows[diagonal + edits + 1] = row
                if diagonal == len(old) - len(new) and row >= len(old):
                    return _blocks(history, len(old), len(new))
            history.append(rows)
        return _common_ends(old, new)


def _entry(furthest: Sequence[int], edits: int, diagonal: int) -> tuple[int, bool]:
    """Return the row of the old text where a path of ``edits`` enters ``diagonal``, and whether it inserts.

    A diagonal is the row of the old text less that of the new. ``furthest`` has the furthest row after one edit less
    for each diagonal from ``-edits``.
    """
    if not edits:
        return 0, False
    before, after = diagonal + edits - 1, diagonal + edits + 1
    if diagonal == -edits or (diagonal != edits and furthest[before] < furthest[after]):
        return furthest[after], True
    return furthest[before] + 1, False


def _blocks(history: Sequence[Sequence[int]], row: int, column: int) -> list[Match]:
    """Return the matching blocks of the path to ``row`` of the old text and ``column`` of the new, and an empty one."""
    blocks = [Match(row, column, 0)]
    for edits in range(len(history) - 1, -1, -1):
        diagonal = row - column
        start, inserted = _entry(history[edits], edits, diagonal)
        if row > start:
            blocks.append(Match(start, start - diagonal, row - start))
        row, column = (start, start - diagonal - 1) if inserted else (start - 1, start - diagonal)
    return blocks[::-1]


def _common_ends(old: Sequence[str], new: Sequence[str]) -> list[Match]:
    """Return the blocks at the start and at the end, and an empty one: what is between them counts as replaced."""
    first = last = 0
    shorter = min(len(old), len(new))
    while first < shorter and old[first] == new[first]:
        first += 1
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    ends = Match(0, 0, first), Match(len(old) - last, len(new) - last, last)
    return [*(end for end in ends if end.size), Match(len(old), len(new), 0)]
