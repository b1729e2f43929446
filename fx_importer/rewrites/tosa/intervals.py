"""Intervals of numbers and of integer types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir


@dataclass(frozen=True)
class Range:
    """All numbers from ``low`` to ``high``, both included. NaN is in no range."""

    low: float
    high: float

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    def within(self, other: Range) -> bool:
        return other.low <= self.low and self.high <= other.high

    def clipped(self, other: Range) -> Range:
        return Range(min(max(self.low, other.low), other.high), max(min(self.high, other.high), other.low))


def integers(bits: int) -> Range:
    """Return the range of signed integers of ``bits``; of one bit, 0 and 1."""
    return Range(0, 1) if bits == 1 else Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


INT32 = integers(32)


def element_bits(value: ir.Value) -> int | None:
    """Return the width of a tensor of integers; None for any other value."""
    if not isinstance(value.type, ir.RankedTensorType):
        return None
    element = ir.RankedTensorType(value.type).element_type
    return ir.IntegerType(element).width if isinstance(element, ir.IntegerType) else None


def whole(value: ir.Value) -> Range | None:
    """Return the range of the type of ``value``, a tensor of integers; None for any other value."""
    bits = element_bits(value)
    return None if bits is None else integers(bits)


def join(ranges: Iterable[Range | None]) -> Range | None:
    """Return the smallest range that contains all of ``ranges``; None if one is unknown."""
    total: Range | None = None
    for interval in ranges:
        if interval is None:
            return None
        total = interval if total is None else total | interval
    return total
