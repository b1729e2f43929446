"""Loops in decompositions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op


def while_loop(
    more: Callable[..., Tensor],
    step: Callable[..., tuple[Tensor, ...]],
    carried: Sequence[Tensor],
    invariants: Sequence[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Repeat ``carried = step(*carried, *invariants)`` while ``more(*carried, *invariants)``, and return ``carried``.

    Initial values are copied to the strides that operators give their results, as torch compares the strides of the
    two: a contiguous tensor with an axis of one element may have others.
    """
    loop: Any = while_loop_op
    initial = tuple(each.clone(memory_format=torch.contiguous_format) for each in carried)
    return tuple(loop(more, step, initial, tuple(invariants)))
