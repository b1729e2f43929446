"""Sizes of inputs are compared with the ranges and divisors of the export."""

from __future__ import annotations

import pytest
import torch

from fx_importer import UsageError, lower
from fx_importer.calls.size_checks import SizeChecks
from fx_importer.manifest import Function, Leaf, Tree, ValueType
from fx_importer.symbolic.expressions import SizeExpression


def function(
    *shapes: tuple[int | str, ...], guards: tuple[str, ...] = (), **symbols: tuple[int, int | None]
) -> Function:
    leaves = tuple(Leaf(f"args[{i}]", ValueType("float32", shape)) for i, shape in enumerate(shapes))
    return Function(Tree(None, leaves), Tree(None, ()), (), (), symbols, guards)


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
        SizeChecks(function(*shapes, **symbols))([torch.empty(size) for size in sizes])


@pytest.mark.parametrize("size", [1, 2, 9], ids=["specialized", "least", "greatest"])
def test_sizes_of_the_export_pass(size) -> None:
    SizeChecks(function(("s0",), ("2*s0 - 1",), s0=(2, 9)))([torch.empty(size), torch.empty(2 * size - 1)])


A, B = r"args\[0\].shape\[0\]", r"args\[1\].shape\[0\]"


@pytest.mark.parametrize(
    "shapes, guards, sizes, message",
    [
        ([("s0",), ("s1",)], ["s0 % s1 == 0"], [(7,), (3,)], f"for sizes with {A} % {B} == 0, but {A} is 7, {B} is 3"),
        ([("s0",), ("s1",)], ["s0 + ((-1)*s1) >= 2"], [(4,), (3,)], f"with {A} - {B} >= 2, but {A} is 4, {B} is 3"),
        ([("s0",), ("s1",)], ["s0 % s1 == 0"], [(7,), (0,)], f"with {A} % {B} == 0, but {A} is 7, {B} is 0"),
        ([("2*s0 + 1",)], ["max(s0, 4) == 4"], [(11,)], rf"with max\(\(\({A} - 1\) // 2\), 4\) == 4"),
        ([("s0",), ("s1",), ("s0*s1",)], [], [(2,), (3,), (7,)], rf"has size 7 along axis 0, but .* {A}\*{B}, 6"),
    ],
    ids=["divisible", "difference", "no_quotient", "of_linear", "product"],
)
def test_guards_of_several_sizes(shapes, guards, sizes, message) -> None:
    checks = SizeChecks(function(*shapes, guards=tuple(guards), s0=(2, None), s1=(2, None)))
    with pytest.raises(UsageError, match=message):
        checks([torch.empty(size) for size in sizes])


@pytest.mark.parametrize("text", ["s0.shape", "open('f')", "s0 ** 9", "[s0]", "(lambda: 1)()", "s0 if", "math", "'s0'"])
def test_text_that_is_no_expression_of_sizes(text) -> None:
    with pytest.raises(ValueError, match="is not an expression of sizes"):
        SizeExpression(text)


def test_input_without_elements_is_checked_in_tosa() -> None:
    """TOSA's function does not take it, so its backends do not compare it."""
    lowered = lower(lambda x, y: y + x.sum(), torch.empty(4, 0), torch.ones(2), output_type="tosa")
    torch.testing.assert_close(lowered(torch.empty(4, 0), torch.ones(2)), torch.ones(2))
    for shape in ((4, 1), (3, 0), (4,)):
        with pytest.raises(UsageError, match=r"'args\[0\]' has shape .*, but the program was exported for \[4, 0\]"):
            lowered(torch.ones(shape), torch.ones(2))
    with pytest.raises(UsageError, match="is int64, but the program was exported for float32"):
        lowered(torch.empty(4, 0, dtype=torch.int64), torch.ones(2))
