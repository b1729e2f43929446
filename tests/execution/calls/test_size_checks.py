"""Sizes of inputs are compared with the ranges and divisors of the export."""

from __future__ import annotations

import pytest
import torch

from fx_importer import UsageError
from fx_importer.execution.calls.size_checks import check_sizes
from fx_importer.manifest import Function, Leaf, Tree, ValueType


def function(*shapes: tuple[int | str, ...], **symbols: tuple[int, int | None]) -> Function:
    leaves = tuple(Leaf(f"args[{i}]", ValueType("float32", shape)) for i, shape in enumerate(shapes))
    return Function(Tree(None, leaves), Tree(None, ()), (), (), symbols)


@pytest.mark.parametrize(
    "shapes, symbols, sizes, message",
    [
        ([("s0", 3)], {"s0": (4, 8)}, [(9, 3)], r"'args\[0\]' has size 9 along axis 0, but .* for sizes from 4 to 8"),
        ([("s0", 3)], {"s0": (4, None)}, [(3, 3)], "has size 3 along axis 0, but .* for sizes of at least 4"),
        ([("4*s0",)], {"s0": (2, 4)}, [(6,)], "has size 6 along axis 0, but .* for a multiple of 4"),
        ([("4*s0 + 1",)], {"s0": (2, 4)}, [(8,)], "has size 8 along axis 0, but .* for a multiple of 4 [+] 1"),
        ([("s0",), ("s0",)], {"s0": (2, 9)}, [(4,), (5,)], "was exported for 4 there, by the size of 'args\\[0\\]'"),
        ([("s0",), ("s0 + 1",)], {"s0": (2, 9)}, [(4,), (4,)], "exported for 5 there, by the size of 'args\\[0\\]'"),
    ],
    ids=["above", "below", "divisible", "remainder", "equal", "derived"],
)
def test_other_sizes_are_errors(shapes, symbols, sizes, message) -> None:
    with pytest.raises(UsageError, match=message):
        check_sizes(function(*shapes, **symbols), [torch.empty(size) for size in sizes])


@pytest.mark.parametrize("size", [1, 2, 9], ids=["specialized", "least", "greatest"])
def test_sizes_of_the_export_pass(size) -> None:
    check_sizes(function(("s0",), ("2*s0 - 1",), s0=(2, 9)), [torch.empty(size), torch.empty(2 * size - 1)])
