"""Weights that stay on devices of XLA between calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch

from fx_importer.engines.xla.xla_processes import among_processes


@dataclass(frozen=True, eq=False)
class _OnDevices:
    tensor: torch.Tensor  # as long as it lives, no other has its id
    version: int
    array: Any


_PLACED: WeakValueDictionary[tuple[int, Hashable], _OnDevices] = WeakValueDictionary()
"""By tensor and place, what functions have put on devices: prefill and decode of a model share its weights."""


class PlacedWeight:
    """Puts a weight on devices, if it is another tensor than in the call before, or has changed.

    A change in place shows in the counters that PyTorch has for autograd; ``.data`` has none.

    Args:
        place: where ``put`` puts it, and in which form.
        put: takes the tensor, and returns an array of jax.
    """

    def __init__(self, place: Hashable, put: Callable[[torch.Tensor], Any]):
        self._place, self._put = place, put
        self._held: _OnDevices | None = None

    def __call__(self, tensor: torch.Tensor) -> Any:
        with among_processes():
            if tensor.is_inference():  # has no counter
                return self._put(tensor)
            if not _is_current(self._held, tensor):
                key = id(tensor), self._place
                self._held = _PLACED.get(key)
                if not _is_current(self._held, tensor):
                    self._held = _PLACED[key] = _OnDevices(tensor, tensor._version, self._put(tensor))
            assert self._held is not None
            return self._held.array


def _is_current(held: _OnDevices | None, tensor: torch.Tensor) -> bool:
    return held is not None and held.tensor is tensor and held.version == tensor._version
