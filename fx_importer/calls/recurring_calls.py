"""Recognition of calls with arguments like those of an earlier call, whose checks need not be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch._C._dynamo.guards import TensorGuards

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Other classes (fake tensors, quantized wrappers, user classes) may lack memory that compiled code can read."""


class RecurringCall:
    """Recognizes tensors of the classes, dtypes, devices, layouts, sizes and strides of those of an accepted call.

    TorchDynamo's check of tensors does that in one call. It also compares whether gradients are needed, and the modes
    of the thread, such as autocast: calls that differ in these only are not recognized.

    Args:
        count: the number of arguments.
    """

    def __init__(self, count: int):
        self._count = count
        self._check: Callable[..., bool] | None = None

    def matches(self, arguments: Sequence[Any]) -> TypeGuard[Sequence[torch.Tensor]]:
        """Return whether ``arguments`` are like those of the last accepted call."""
        check = self._check  # which another thread may replace
        return check is not None and len(arguments) == self._count and check(*arguments)

    def forget(self) -> None:
        """Recognize no call, until one is accepted."""
        self._check = None

    def accept(self, arguments: Sequence[Any]) -> None:
        """Recognize calls like that with ``arguments`` from now on, if all are tensors."""
        if arguments and all(type(each) in PLAIN for each in arguments):
            sizes: Any = [list(each.shape) for each in arguments]  # torch's stub has the type of a single tensor's
            strides: Any = [list(each.stride()) for each in arguments]
            self._check = TensorGuards(*arguments, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
