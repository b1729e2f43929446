"""Numbers of layers that record how they are read, and state that layers index with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


class WatchedNumber:
    """A number that replaces an int and records whether an `IndexedState` or other code reads it."""

    def __init__(self, value: int):
        self.value = value
        self.is_index = self.is_read = False

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] - isinstance reads it
        self.is_read = True
        return int

    def __getattr__(self, name: str) -> Any:
        self.is_read = True
        return getattr(self.value, name)


def _reading(name: str) -> Any:
    def method(self: WatchedNumber, *args: Any) -> Any:
        self.is_read = True
        return getattr(self.value, name)(*args)

    return method


_OF_OBJECTS = ("eq", "ne", "lt", "le", "gt", "ge", "hash", "repr", "str", "format")
for _name in {*dir(int)} - {*dir(object)} | {f"__{operator}__" for operator in _OF_OBJECTS}:
    if callable(getattr(int, _name)):
        setattr(WatchedNumber, _name, _reading(_name))


class IndexedState:
    """An argument of modules that holds an entry for each of them, such as a cache of keys and values by layer."""

    def are_equal(self, one: int, other: int) -> bool:
        """Return whether code does the same with two entries."""
        raise NotImplementedError

    def tensors(self, number: int) -> Mapping[str, Tensor]:
        """Return the tensors of an entry, by a name that other entries use too."""
        raise NotImplementedError


def read(value: Any) -> Any:
    """Return the int of a watched number that leaves the code of its module, and which thus is read."""
    if type(value) is not WatchedNumber:
        return value
    value.is_read = True
    return value.value


def index_of(number: Any) -> int:
    """Return a number that an `IndexedState` indexes its entries with."""
    if type(number) is not WatchedNumber:
        return number
    number.is_index = True
    return number.value
