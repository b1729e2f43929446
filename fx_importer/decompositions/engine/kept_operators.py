"""Operators that are kept while their own rule runs: it emits them with arguments whose lowering is correct."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch._ops import OpOverload, OpOverloadPacket

_KEPT: ContextVar[frozenset[OpOverload]] = ContextVar("kept_operators", default=frozenset())


_EMITTED: ContextVar[set[OpOverloadPacket] | None] = ContextVar("emitted_operators", default=None)


@contextmanager
def emissions() -> Iterator[set[OpOverloadPacket]]:
    """Collect the operators that rules in the body emit by `keep`, or that `note_emission` was called for."""
    outer, inner = _EMITTED.get(), set[OpOverloadPacket]()
    token = _EMITTED.set(inner)
    try:
        yield inner
    finally:
        _EMITTED.reset(token)
        if outer is not None:
            outer |= inner


def is_user_kept() -> bool:
    """Return whether the rule that runs is that of an operator which a user keeps, and should emit it."""
    return _EMITTED.get() is not None


def note_emission(operator: OpOverload) -> None:
    """Note that the rule that runs emits ``operator``."""
    if (emitted := _EMITTED.get()) is not None:
        emitted.add(operator.overloadpacket)


def is_kept(operator: OpOverload) -> bool:
    """Return whether ``operator`` is kept: its rule then returns ``NotImplemented``."""
    return operator in _KEPT.get()


@contextmanager
def keep(operator: OpOverload) -> Iterator[None]:
    """Keep ``operator`` within the context, so that its own rule can emit it."""
    note_emission(operator)
    token = _KEPT.set(_KEPT.get() | {operator})
    try:
        yield
    finally:
        _KEPT.reset(token)
