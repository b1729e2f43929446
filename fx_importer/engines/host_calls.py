"""Functions of a device, called with tensors of the host: their arguments are copied there, and results back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fx_importer.calls.backend import Backend, Loaded
from fx_importer.mlir.bindings import ir


@dataclass(frozen=True)
class HostCalls:
    """A backend of a device, whose functions take and return tensors of the host."""

    backend: Backend
    device: torch.device

    @property
    def name(self) -> str:
        return self.backend.name

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        return FunctionOnDevice(self.backend.load(module, func_name), self.device)


@dataclass(frozen=True)
class FunctionOnDevice:
    """A function of ``device`` that takes and returns tensors of the host. State stays on the device."""

    function: Loaded
    device: torch.device

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        return self._on_host(self.function(*self._on_device(arguments)))

    def keep_state(self, *arguments: Any) -> tuple[Any, ...]:
        """Call the function, with new values of state as they are on the device."""
        function = getattr(self.function, "keep_state", self.function)
        return self._on_host(function(*self._on_device(arguments)))

    def _on_device(self, values: Sequence[Any]) -> list[Any]:
        return [value.to(self.device) if isinstance(value, torch.Tensor) else value for value in values]

    def _on_host(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([value.cpu() if isinstance(value, torch.Tensor) else value for value in values])
