"""Rules of users that call the operator that they are for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload

_RUNNING: ContextVar[frozenset[OpOverload]] = ContextVar("operators_of_running_rules", default=frozenset())


@dataclass(frozen=True)
class OwnCallRule:
    """A rule that does not apply to calls that it makes itself: they have the table's own rule, or stay.

    ``lambda x: aten.gelu(x.float()).to(x.dtype)`` as the rule of ``aten.gelu`` changes the dtype, and ends.
    """

    operators: tuple[OpOverload, ...]
    rule: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the rule; ``NotImplemented`` within it."""
        running = _RUNNING.get()
        if running.issuperset(self.operators):
            return NotImplemented
        token = _RUNNING.set(running.union(self.operators))
        try:
            return self.rule(*args, **kwargs)
        finally:
            _RUNNING.reset(token)
