"""The protocols of backends, which run modules."""

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
"""A compiled function: it takes a `Value` for each argument, by position, and returns a tuple of its results.

MLIR's integers are signless: results are signed tensors, to be viewed as unsigned where they are.
"""


EVALUATION = Limits(seconds=600, memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4)
"""Limits of a call that another process evaluates: ten minutes, and three quarters of the memory of the machine."""


class Backend(Protocol):
    """Runs modules."""

    @property
    def name(self) -> str:
        """The name that users pass."""
        ...

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Compile the function ``func_name`` of ``module``, which does not change.

        Raises:
            UsageError: if there is no such function, or its signature is unsupported.
            StageFailed: if the module cannot be compiled.
        """
        ...


@runtime_checkable
class TakesWeights(Protocol):
    """A backend that takes the weights of elided resources apart from the module, and does not compile them in."""

    def with_weights(self, weights: Mapping[str, torch.Tensor]) -> Backend:
        """Return the backend with the weights of resources, by their names. Compiled code may read them in place."""
        ...
