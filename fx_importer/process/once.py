"""Attributes that are computed at the first access, by one of the threads that read them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    once = property
else:

    class once:  # noqa: N801 - a decorator
        """Like `functools.cached_property`, with a lock per instance; Python 3.12 has none, and 3.11 one for all."""

        def __init__(self, compute: Callable[[Any], Any]):
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: object | None, owner: type | None = None) -> Any:
            if instance is None:
                return self
            values = vars(instance)  # which Python reads first, once the value is there
            with values.setdefault("_computing", threading.RLock()):
                if self._name not in values:
                    values[self._name] = self._compute(instance)
            return values[self._name]
