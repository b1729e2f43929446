"""Operators that are kept while their own rule runs: it emits them with arguments whose lowering is correct."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch._ops import OpOverload

_KEPT: ContextVar[frozenset[OpOverload]] = ContextVar("kept_operators", default=frozenset())


def is_kept(operator: OpOverload) -> bool:
    """Return whether ``operator`` is kept: its rule then returns ``NotImplemented``."""
    return operator in _KEPT.get()


@contextmanager
def keep(operator: OpOverload) -> Iterator[None]:
    """Keep ``operator`` within the context, so that its own rule can emit it."""
    token = _KEPT.set(_KEPT.get() | {operator})
    try:
        yield
    finally:
        _KEPT.reset(token)
