"""What single passes changed, as differences of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_VALUE = re.compile(r"%[\w#:]+")
_CONTEXT = 3
_MOST_ROWS = 3000
"""Rows of a difference beyond which it is cut off."""


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
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT):
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
