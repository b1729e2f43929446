"""Recognize calls that match an earlier call, so that their checks can be skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import torch
from torch._C._dynamo.guards import TensorGuards

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Other classes (fake tensors, quantized wrappers, user classes) may lack memory that compiled code can read."""


def has_memory(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether no tensor has an address of 0: the storage of a recurring call may have been freed since."""
    return 0 not in map(torch.Tensor.data_ptr, tensors)


class RecurringCall:
    """Recognizes tensors with the same class, dtype, device, layout, sizes and strides as in an accepted call.

    TorchDynamo's tensor guards compare these in one call. They also compare ``requires_grad`` and thread modes such as
    autocast; a call that differs only in these is not recognized.

    Args:
        count: the number of arguments.
    """

    def __init__(self, count: int):
        self._count = count
        self._check: Callable[..., bool] | None = None

    def matches(self, arguments: Sequence[Any]) -> TypeGuard[Sequence[torch.Tensor]]:
        """Return whether ``arguments`` match the last accepted call."""
        check = self._check  # another thread may replace it
        return check is not None and len(arguments) == self._count and check(*arguments)

    def forget(self) -> None:
        """Recognize no call until the next `accept`."""
        self._check = None

    def accept(self, arguments: Sequence[Any]) -> None:
        """Recognize calls that match ``arguments`` from now on, if all are tensors."""
        if arguments and all(type(argument) in PLAIN for argument in arguments):
            sizes: Any = [
                list(argument.shape) for argument in arguments
            ]  # torch's stub types it as for a single tensor
            strides: Any = [list(argument.stride()) for argument in arguments]
            self._check = TensorGuards(*arguments, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
