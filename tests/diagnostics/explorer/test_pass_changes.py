"""Differences of the text before and after a pass."""

from __future__ import annotations

import random
import time
from difflib import SequenceMatcher

import pytest

from fx_importer.diagnostics.explorer import recorder
from fx_importer.diagnostics.explorer.recorder import hunks_between


def _applied(before: list[str], after: list[str]) -> list[str]:
    """Return ``before`` with the hunks to ``after`` applied."""
    result, done = [], 0
    for start, _, rows in hunks_between(before, after):
        result += before[done:start]
        old, new = ([row[1:] for row in rows if row[0] in signs] for signs in ("- ", "+ "))
        assert before[start : start + len(old)] == old
        result, done = result + new, start + len(old)
    return result + before[done:]


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_hunks_turn_one_text_into_the_other(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(recorder, "_MOST_EDITS", most)
    draw = random.Random(0)
    for _ in range(200):
        before, after = (draw.choices("abc", k=draw.randrange(12)) for _ in range(2))
        assert _applied(before, after) == after
    assert not list(hunks_between(["a", "b"], ["a", "b"]))


def test_fewest_rows_change() -> None:
    draw = random.Random(1)
    for _ in range(100):
        before, after = (draw.choices("abcd", k=20) for _ in range(2))
        changed = sum(row[0] != " " for _, _, rows in hunks_between(before, after) for row in rows)
        matched = sum(
            block.size for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
        )
        assert changed <= 40 - 2 * matched


def test_many_equal_lines_take_no_minute() -> None:
    before = [f"%{i} = arith.constant 0 : index" if i % 2 else "}" for i in range(2000)]
    start = time.perf_counter()
    (hunk,) = hunks_between(before, [line for i, line in enumerate(before) if i % 5])
    assert len(hunk[2]) > 1900
    assert time.perf_counter() - start < 10
