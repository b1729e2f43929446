"""The tracing contexts shared by `import_function` and `DynamoCompiler`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_importer.errors import UsageError
from fx_importer.frontend import torch_patches


@contextmanager
def as_new(fn: Any) -> Iterator[None]:
    """Hide earlier compilations from TorchDynamo, and drop those made in the context.

    TorchDynamo compiles a function only a limited number of times, and then leaves it to Python.

    Raises:
        UsageError: if ``fn`` is not callable.
    """
    if not callable(fn) or isinstance(fn, torch.Tensor):
        raise UsageError(f"expected a function or an nn.Module, not {type(fn).__name__}")
    with torch_patches.tracing():
        torch._dynamo.reset()
        try:
            yield
        finally:
            torch._dynamo.reset()


@contextmanager
def own_settings() -> Iterator[None]:
    """Have TorchDynamo trace RNN, LSTM and GRU layers, which it leaves to Python by default, and warn of nothing."""
    with (
        torch_patches.warnings_filtered("ignore", "Dynamo does not know how to trace", UserWarning),
        torch_patches.warnings_filtered("ignore", "`torch.jit.script` is deprecated", DeprecationWarning),
        torch._dynamo.config.patch(allow_rnn=True),
    ):
        yield
