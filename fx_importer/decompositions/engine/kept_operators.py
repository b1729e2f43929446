"""Rules that emit the operator that they stand for, with arguments on which its lowering is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch._ops import OpOverload

_WHOLE: ContextVar[frozenset[OpOverload]] = ContextVar("whole", default=frozenset())


def is_whole(operator: OpOverload) -> bool:
    """Whether ``operator`` is to stay: its rule then returns ``NotImplemented``."""
    return operator in _WHOLE.get()


@contextmanager
def whole(operator: OpOverload) -> Iterator[None]:
    """Let the rule of ``operator`` emit the operator itself."""
    token = _WHOLE.set(_WHOLE.get() | {operator})
    try:
        yield
    finally:
        _WHOLE.reset(token)
