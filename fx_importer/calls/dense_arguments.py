"""Call arguments for runtimes that read dense memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fx_importer.calls.call_signature import Signature
from fx_importer.calls.memref import dense
from fx_importer.calls.recurring_calls import RecurringCall, has_memory


class DenseArguments:
    """Checks the arguments of a function, makes tensors dense, and detaches them.

    A call that matches the previous one costs one comparison.
    """

    def __init__(self, signature: Signature):
        self._signature = signature
        self._recurring = RecurringCall(len(signature.arguments))
        self._recurring_with_gradients = RecurringCall(len(signature.arguments))

    def __call__(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return ``arguments`` with dense tensors. Raises `UsageError` listing every argument that does not fit."""
        if self._recurring.matches(arguments) and has_memory(arguments):
            return arguments
        if self._recurring_with_gradients.matches(arguments) and has_memory(arguments):
            return [each.detach() for each in arguments]
        self._signature.check(arguments)
        made = [dense(argument) if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        if all(isinstance(each, torch.Tensor) and _same(each, new) for each, new in zip(arguments, made, strict=True)):
            needs_gradients = any(each.requires_grad for each in arguments)
            (self._recurring_with_gradients if needs_gradients else self._recurring).accept(arguments)
        return made


def _same(tensor: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether ``new`` has the data pointer and strides of ``tensor``."""
    return tensor.data_ptr() == new.data_ptr() and tensor.stride() == new.stride()
