"""What anything that runs modules looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from fx_importer.mlir.bindings import ir

Value = torch.Tensor | bool | int | float
"""What goes into a loaded function and comes out of it."""

Loaded = Callable[..., tuple[Any, ...]]
"""A function ready to run: it takes a `Value` for each argument, by position, and returns a tuple of its results.

MLIR's integers have no sign: a tensor of them comes back as a signed one, to be viewed as ``uint8`` where it is that.
"""


class Backend(Protocol):
    """Runs modules."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Make the function ``func_name`` of ``module`` ready to run. ``module`` stays as it is.

        Raises:
            UsageError: if there is no such function, or it takes or returns what this backend cannot.
            StageFailed: if the module cannot be compiled.
        """
        ...
