"""What `import_function` and `DynamoCompiler` have in common: a function that TorchDynamo sees for the first time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_importer.errors import UsageError


@contextmanager
def as_new(fn: Any) -> Iterator[None]:
    """Let TorchDynamo know nothing of what was compiled before, and after it nothing of what is compiled here.

    It looks at a function a few times only, and then leaves it to Python unseen.

    Raises:
        UsageError: if ``fn`` cannot be called.
    """
    if not callable(fn) or isinstance(fn, torch.Tensor):
        raise UsageError(f"expected a function or an nn.Module, not {type(fn).__name__}")
    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()
