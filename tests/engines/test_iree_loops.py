"""Loops with conditions on IREE."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from fx_importer import lower

pytest.importorskip("iree.compiler")

X = torch.tensor([1.0, 2.0])


def counted(x):
    return while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2 + n), (torch.tensor(0), x))


def loop_in_a_loop(x):
    return while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, counted(x)[1] / 8), (torch.tensor(0), x))


def unread(x):
    """The body reads neither its second value nor its condition."""
    return while_loop(
        lambda go, y, x: go.clone(), lambda go, y, x: (x.sum() < 20, x + 1, x * 2), (torch.tensor(True), X, x)
    )


def never(x):
    return while_loop(lambda x, y: x.sum() < 0, lambda x, y: (x + 1, y * 2), (x, x - 1))


def equal_after_a_step(x):
    return while_loop(lambda x, y: x.sum() < 9, lambda x, y: (x + y, x + y), (x, x * 3))


def last_of_equal(x):
    """The third value is the one before of two that are equal."""
    return while_loop(lambda x, y, z: x.sum() < 9, lambda x, y, z: ((x + x) * 1, (y + y) * 1, y * 1), (x, x * 1, x - 1))


def equal(x):
    return while_loop(lambda x, y: x.sum() < 9, lambda x, y: (x * 2, y * 2), (x, x.clone()))


@pytest.mark.slow_rows("^(stablehlo|tosa)-(never|equal|equal_after_a_step|last_of_equal|counted)$")
@pytest.mark.parametrize("function", [counted, loop_in_a_loop, unread, never, equal_after_a_step, last_of_equal, equal])
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_loops_end_with_the_values_of_eager(
    output_type: str, function: Callable[..., tuple[torch.Tensor, ...]]
) -> None:
    lowered = lower(function, X, output_type=output_type)
    torch.testing.assert_close(lowered.caller(backend="iree")(X), function(X))
