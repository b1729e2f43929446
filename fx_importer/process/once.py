"""Attributes that are computed at the first access, by one of the threads that read them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 - a decorator
    """Like `functools.cached_property`, with a lock for each instance; Python 3.12 has none, and 3.11 one for all."""

    def __init__(self, compute: Callable[[Any], T]):
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> once[T] | T:
        if instance is None:
            return self
        values = vars(instance)  # which Python reads first, once the value is there
        with values.setdefault("_computing", threading.RLock()):
            if self._name not in values:
                values[self._name] = self._compute(instance)
        return values[self._name]
