"""The cache that we pass to transformers models, and layer numbers that track how they are read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache


class LayerNumber:
    """A layer number that replaces an int and records whether a `LayersCache` or other code reads it."""

    def __init__(self, value: int):
        self.value = value
        self.is_of_cache = self.is_read = False

    def of_cache(self) -> int:
        """Return the number for use as a cache index."""
        self.is_of_cache = True
        return self.value

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] - isinstance reads it
        self.is_read = True
        return int

    def __getattr__(self, name: str) -> Any:
        self.is_read = True
        return getattr(self.value, name)


def _reading(name: str) -> Any:
    def method(self: LayerNumber, *args: Any) -> Any:
        self.is_read = True
        return getattr(self.value, name)(*args)

    return method


_OF_OBJECTS = ("eq", "ne", "lt", "le", "gt", "ge", "hash", "repr", "str", "format")
for _name in {*dir(int)} - {*dir(object)} | {f"__{each}__" for each in _OF_OBJECTS}:
    if callable(getattr(int, _name)):
        setattr(LayerNumber, _name, _reading(_name))


class LayersCache(Cache):
    """A cache with the given layers."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: Any, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values to a layer, and return the keys and values that queries attend to."""
        number = layer_idx.of_cache() if type(layer_idx) is LayerNumber else layer_idx
        return super().update(key_states, value_states, number, *args, **kwargs)

    def are_equal(self, one: int, other: int) -> bool:
        """Return whether two layers update their buffers in the same way."""
        ours, theirs = vars(self.layers[one]), vars(self.layers[other])
        return type(self.layers[one]) is type(self.layers[other]) and all(
            _is_alike(value, theirs[name]) for name, value in ours.items()
        )


def _is_alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return (one.shape, one.dtype) == (other.shape, other.dtype)
    if isinstance(one, torch.SymInt):
        return isinstance(other, torch.SymInt) and one.node.expr == other.node.expr
    return one is other or (type(one) is int and one == other)
