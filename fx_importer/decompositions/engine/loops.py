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
    state: Sequence[Tensor],
    invariants: Sequence[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Repeat ``state = step(*state, *invariants)`` while ``more(*state, *invariants)``, and return ``state``.

    Initial values are copied to the strides that operators give their results, as torch compares the strides of the
    two: a contiguous tensor with an axis of one element may have others.
    """
    loop: Any = while_loop_op
    initial = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in state)
    return tuple(loop(more, step, initial, tuple(invariants)))
