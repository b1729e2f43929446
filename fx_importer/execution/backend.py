"""What anything that runs modules looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from fx_importer.bindings import ir

Value = torch.Tensor | bool | int | float
"""What goes into a loaded function and comes out of it."""

Loaded = Callable[..., tuple[Value, ...]]
"""A function ready to run: takes the function's arguments by position, returns its results, always as a tuple."""


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
