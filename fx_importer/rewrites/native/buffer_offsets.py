"""Places buffers in one block of memory by the times when they are in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_PLANS = 200
"""Orders that are tried where the first one takes more than the buffers in use at once."""
_STEPS = 20_000_000
"""Comparisons of two buffers, in all plans."""


@dataclass(frozen=True)
class Lifetime:
    """The size of a buffer, and the first and last time when it is in use."""

    nbytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Return whether both are in use at some time."""
        return self.first <= other.last and other.first <= self.last


def place(buffers: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return the offset of each buffer, and the bytes of the block.

    A buffer is at the lowest free place, of the largest one first. If that takes more than the largest sum of buffers
    in use at once, those at the end of the block come before those in their way, again and again, and the best order is
    kept.
    """
    bound = most_in_use(buffers)
    order = sorted(range(len(buffers)), key=lambda at: -buffers[at].nbytes)
    offsets, size = _place_in_order(buffers, order)
    offsets_tried, best = offsets, size
    for number in range(min(_PLANS, _STEPS // max(len(buffers), 1) ** 3)):
        if best <= bound:
            break
        last = max(range(len(order)), key=lambda at: (offsets_tried[order[at]] + buffers[order[at]].nbytes, -at))
        before = [at for at in range(last) if buffers[order[at]].overlaps(buffers[order[last]])]
        if not before:
            break
        order.insert(before[number % len(before)], order.pop(last))
        offsets_tried, size = _place_in_order(buffers, order)
        if size < best:
            offsets, best = offsets_tried, size
    return offsets, best


def most_in_use(buffers: Sequence[Lifetime]) -> int:
    """Return the largest sum of the sizes of buffers that are in use at once."""
    sums = (sum(other.nbytes for other in buffers if other.first <= buffer.first <= other.last) for buffer in buffers)
    return max(sums, default=0)


def _place_in_order(buffers: Sequence[Lifetime], order: Sequence[int]) -> tuple[list[int], int]:
    offsets, placed = [0] * len(buffers), list[int]()
    for at in order:
        buffer, offset = buffers[at], 0
        for other in sorted(placed, key=offsets.__getitem__):
            end = offsets[other] + buffers[other].nbytes
            if not buffer.overlaps(buffers[other]) or end <= offset:
                continue
            if offsets[other] - offset >= buffer.nbytes:
                break
            offset = end
        offsets[at] = offset
        placed.append(at)
    return offsets, max((offset + buffer.nbytes for offset, buffer in zip(offsets, buffers, strict=True)), default=0)
