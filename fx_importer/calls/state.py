"""The state that a caller keeps: tensors, or what a backend keeps on its device until somebody reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch


class OnDevice(ABC):
    """A new value of state, kept where a backend computes.

    A backend's loaded function may have a method ``keep_state``. It is called like the function, takes such values for
    state, and returns them for state. A value that was passed in is not valid afterwards.
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
    """State by name in the state dict. A value on a device is read when somebody asks for it."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]):
        self.held: dict[str, Any] = dict(tensors)
        """Tensors and `OnDevice`, as they are."""

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
