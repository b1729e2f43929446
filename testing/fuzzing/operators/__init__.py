"""The operators of random programs, by family, and how likely each family is."""

from __future__ import annotations

from testing.fuzzing.draw import Family
from testing.fuzzing.operators import elementwise, in_place, indexing, nn, numbers, reductions, shapes

FAMILIES: tuple[tuple[Family, int], ...] = (
    (elementwise.unary, 10),
    (elementwise.unary_float, 6),
    (elementwise.activation, 4),
    (elementwise.binary, 14),
    (elementwise.with_number, 8),
    (elementwise.divisions, 4),
    (elementwise.bits, 4),
    (elementwise.choice, 6),
    (elementwise.bounded, 5),
    (elementwise.ternary, 3),
    (elementwise.cast, 8),
    (reductions.reduction, 8),
    (reductions.whole, 3),
    (reductions.positions, 4),
    (reductions.scan, 4),
    (reductions.order, 5),
    (shapes.view, 12),
    (shapes.part, 8),
    (shapes.joined, 6),
    (shapes.repeated, 4),
    (shapes.made, 2),
    (shapes.strided, 2),
    (shapes.padded, 3),
    (indexing.selected, 6),
    (indexing.written, 6),
    (indexing.masked, 3),
    (indexing.embedded, 2),
    (nn.product, 6),
    (nn.convolution, 3),
    (nn.pool, 3),
    (nn.normalized, 5),
    (nn.loss, 2),
    (nn.resized, 2),
    (numbers.number, 4),
)
IN_PLACE: tuple[tuple[Family, int], ...] = (
    (in_place.arithmetic, 20),
    (in_place.assigned, 20),
    (in_place.filled, 10),
    (in_place.put, 10),
)
"""The further families of programs with mutation."""
