"""Rules that emit the operator that they stand for, with arguments on which its lowering is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch._ops import OpOverload

_KEPT: ContextVar[frozenset[OpOverload]] = ContextVar("kept_operators", default=frozenset())


def is_kept(operator: OpOverload) -> bool:
    """Whether ``operator`` is to stay: its rule then returns ``NotImplemented``."""
    return operator in _KEPT.get()


@contextmanager
def keep(operator: OpOverload) -> Iterator[None]:
    """Let the rule of ``operator`` emit the operator itself."""
    token = _KEPT.set(_KEPT.get() | {operator})
    try:
        yield
    finally:
        _KEPT.reset(token)
