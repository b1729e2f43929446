"""Resizes of images in the parameters of TOSA's ``resize``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.rules.windows import shape_of
from fx_importer.quantization.scales import NoIntegerForm

NEAREST = (aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec)
BILINEAR = (aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec)
_MOST = 2**11
"""The largest numerator: TOSA 1.0, ``RESIZE``."""

Places = tuple[list[int], list[int], list[int], list[int]]
"""Sizes of the result, numerators and denominators, offsets and borders, by axis."""


def nearest_places(node: fx.Node) -> Places:
    """Return where a nearest resize reads: ``floor(i * in / out)``, halves of steps below what TOSA rounds.

    Raises:
        NoIntegerForm: for what TOSA has no form of.
    """
    before, after = _sizes(node)
    found = [(2 * out, 2 * size, 1 - out) for size, out in zip(before, after, strict=True)]
    if any(_step(node, axis) != Fraction(size, out) for axis, size, out in zip((0, 1), before, after, strict=True)):
        raise NoIntegerForm("its scale factors are not the ratios of its sizes")
    if any(_rounds_away(size, out) for size, out in zip(before, after, strict=True)):
        raise NoIntegerForm(f"in float32, as eager computes places, {before} to {after} reads other elements")
    # Without a common divisor the offset would be no whole number.
    return _checked(before, after, found)


def _rounds_away(size: int, out: int) -> bool:
    """Return whether ``floor(i * (size / out))`` differs in float32, as of 2 elements to 82."""
    places = torch.arange(out)
    rounded = (places.float() * torch.tensor(size / out, dtype=torch.float32)).long()
    return out not in (size, 2 * size) and not torch.equal(rounded, places * size // out)


def bilinear_places(node: fx.Node) -> Places:
    """Return where a bilinear resize reads. Raises `NoIntegerForm` for what TOSA has no form of."""
    before, after = _sizes(node)
    aligned = bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("align_corners"))
    found: list[tuple[int, int, int]] = []
    for axis, (size, out) in enumerate(zip(before, after, strict=True)):
        if aligned:
            numerator, denominator, offset = max(out - 1, 1), size - 1 if out > 1 else 0, 0
        elif _step(node, axis) != Fraction(size, out):
            raise NoIntegerForm("its scale factors are not the ratios of its sizes")
        else:
            numerator, denominator, offset = 2 * out, 2 * size, size - out
        if denominator == 0:  # one element, which is read everywhere
            numerator, denominator, offset = 1, 1, 0
            if out > 1:
                raise NoIntegerForm("it repeats one element with aligned corners")
        common = math.gcd(numerator, denominator, offset)
        found.append((numerator // common, denominator // common, offset // common))
    return _checked(before, after, found)


def _sizes(node: fx.Node) -> tuple[list[int], list[int]]:
    before, after = shape_of(node.args[0]), shape_of(node)
    return before[2:], after[2:]


def _step(node: fx.Node, axis: int) -> Fraction:
    """Return the distance of what neighbours of the result read: by given scale factors, or by sizes."""
    before, after = _sizes(node)
    last: Any = node.args[-1] if str(node.target).endswith(".vec") else None
    factors = last if isinstance(last, Sequence) and len(node.args) > 2 else node.kwargs.get("scale_factors")
    if isinstance(factors, Sequence) and all(isinstance(each, int | float) for each in factors):
        factor = Fraction(factors[axis])  # type: ignore[arg-type]
        return Fraction(before[axis], after[axis]) if factor * before[axis] == after[axis] else 1 / factor
    given = list(node.args[2:]) if node.target in NEAREST else list(node.args[3:])
    if not str(node.target).endswith(".vec") and given[axis : axis + 1] not in ([], [None]):
        return 1 / Fraction(given[axis])  # type: ignore[arg-type]
    return Fraction(before[axis], after[axis])


def _checked(before: Sequence[int], after: Sequence[int], found: Sequence[tuple[int, int, int]]) -> Places:
    for numerator, denominator, offset in found:
        if numerator > _MOST or denominator >= 16 * numerator or not -numerator <= offset < 16 * numerator:
            raise NoIntegerForm(
                f"sizes {list(before)} to {list(after)} are a ratio of {numerator} to {denominator}, which is out of "
                "the range of TOSA's resize"
            )
    borders = [
        (out - 1) * denominator - (size - 1) * numerator + offset
        for size, out, (numerator, denominator, offset) in zip(before, after, found, strict=True)
    ]
    scale = [each for numerator, denominator, _ in found for each in (numerator, denominator)]
    return list(after), scale, [offset for *_, offset in found], borders
