"""Zeller and Hildebrandt's ddmin: the fewest items with which something persists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimized(items: Sequence[T], persists: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return some of ``items``, in order, with which it ``persists``, and without any single one of which it does not.

    It is taken for granted that it persists with all of them. What is tried is never tried twice.
    """
    known: dict[tuple[int, ...], bool] = {}

    def holds(chosen: Sequence[int]) -> bool:
        key = tuple(chosen)
        if key not in known:
            known[key] = bool(key) and persists([items[i] for i in key])
        return known[key]

    kept = list(range(len(items)))
    parts = 2
    while len(kept) > 1:
        chunks = [kept[len(kept) * i // parts : len(kept) * (i + 1) // parts] for i in range(parts)]
        others = [[i for i in kept if i not in set(chunk)] for chunk in chunks]
        # With two parts, each is the other's complement.
        if found := next((each for each in (chunks if parts == 2 else []) if holds(each)), None):
            kept, parts = found, 2
        elif found := next((each for each in others if holds(each)), None):
            kept, parts = found, max(parts - 1, 2)
        elif parts < len(kept):
            parts = min(2 * parts, len(kept))
        else:
            break
    return [items[i] for i in kept]
