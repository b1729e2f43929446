"""Filter of passes: numbers the MLIR passes that run in a context, and leaves one of them out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class PassFilter:
    """Lists the passes that run, of pipelines and of engines, and leaves out the one with the number ``left_out``."""

    left_out: int | None = None
    passes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The stage and the name of each pass, in order."""

    def keeps(self, stage: str, name: str) -> bool:
        """Return whether the next pass runs; called once for each pass."""
        self.passes.append((stage, name))
        return len(self.passes) - 1 != self.left_out


_FILTER: ContextVar[PassFilter | None] = ContextVar("filter of passes", default=None)


@contextmanager
def filtering_passes(pass_filter: PassFilter) -> Iterator[None]:
    """Ask ``pass_filter`` for each pass in the body."""
    token = _FILTER.set(pass_filter)
    try:
        yield
    finally:
        _FILTER.reset(token)


def current_filter() -> PassFilter | None:
    """Return the filter of the passes that run here."""
    return _FILTER.get()
