"""Delta debugging: the ddmin algorithm of Zeller and Hildebrandt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimized(items: Sequence[T], persists: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a 1-minimal subsequence of ``items`` with which the failure still ``persists``.

    Leaving out any single item of the result makes ``persists`` false. The caller guarantees that it persists with all
    items. No subset is tried twice.
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
        # With two parts, the complement of each is the other part.
        if smaller := next((chunk for chunk in (chunks if parts == 2 else []) if holds(chunk)), None):
            kept, parts = smaller, 2
        elif smaller := next((other for other in others if holds(other)), None):
            kept, parts = smaller, max(parts - 1, 2)
        elif parts < len(kept):
            parts = min(2 * parts, len(kept))
        else:
            break
    return [items[i] for i in kept]
