"""State that a caller keeps: torch tensors, or values on a backend's device, copied to torch when read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch


class OnDevice(ABC):
    """A new state value, kept on the backend's device.

    A loaded function may have a ``keep_state`` method. It is called like the function, but takes and returns such
    values for state. A value is invalid after it has been passed in.
    """

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The dtype in torch."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @abstractmethod
    def tensor(self) -> torch.Tensor:
        """Return a copy in torch."""


class State(MutableMapping[str, torch.Tensor]):
    """State by name in the state dict. Values on a device are copied to torch on first access."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]):
        self.held: dict[str, Any] = dict(tensors)
        """Tensors and `OnDevice` values, not converted."""

    def __getitem__(self, name: str) -> torch.Tensor:
        value = self.held[name]
        if isinstance(value, OnDevice):  # from now on it is in torch, where it may be written
            value = self.held[name] = value.tensor()
        return value

    def __setitem__(self, name: str, value: torch.Tensor) -> None:
        self.held[name] = value

    def __delitem__(self, name: str) -> None:
        del self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return repr(dict(self))
