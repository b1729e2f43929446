"""Protocols for backends, which run modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch

from fx_importer.mlir.bindings import ir
from fx_importer.options import Limits

Value = torch.Tensor | bool | int | float
"""An argument or a result of a loaded function."""

Loaded = Callable[..., tuple[Any, ...]]
"""A compiled function. It takes one `Value` per argument, by position, and returns a tuple of its results.

MLIR integers are signless: results are signed tensors, which callers view as unsigned where needed.
"""


EVALUATION = Limits(seconds=600, memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4)
"""Limits for a call evaluated in another process: ten minutes, and three quarters of the machine's memory."""


class Backend(Protocol):
    """Runs modules."""

    @property
    def name(self) -> str:
        """The name that users pass."""
        ...

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``. The module is not modified.

        Raises:
            UsageError: if the function does not exist, or its signature is unsupported.
            StageFailed: if the module cannot be compiled.
        """
        ...


@runtime_checkable
class TakesWeights(Protocol):
    """A backend that takes the weights of elided resources separately, instead of compiling them in."""

    def with_weights(self, weights: Mapping[str, torch.Tensor]) -> Backend:
        """Return the backend with ``weights``, by resource name. Compiled code may read them in place."""
        ...
