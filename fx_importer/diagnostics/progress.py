"""How far long work has come: told to whoever follows it, a few times a second. For nobody, nothing is counted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from fx_importer.errors import UsageError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_APART = 0.2
"""Seconds between two updates within a stage."""

_TELLING = 0.05, 1.0
"""The part of a stage that has to be done, and the seconds that it has to have taken, before its rate says anything."""


@dataclass(frozen=True)
class Progress:
    """How far a lowering has come."""

    stage: str
    done: int = 0
    total: int | None = None
    """None while nothing can be counted: in torch's own export, for one."""
    unit: str = ""
    """What is counted: ``"nodes"``, ``"passes"``."""
    seconds: float = 0.0
    """Since the stage began."""
    counted_for: float = 0.0
    """Seconds since the first of what is counted now."""

    @property
    def remaining(self) -> float | None:
        """Seconds that what is counted now will take, at the rate so far; None where that would be a guess.

        Passes are no measure: one may take a thousand times as long as the next.
        """
        part, least = _TELLING
        if not self.total or self.unit == "passes" or self.done < part * self.total or self.counted_for < least:
            return None
        return self.counted_for * (self.total - self.done) / self.done


class Countable(Protocol[T_co]):
    """What has a length, and items; the nodes of a graph are no `Collection`."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[T_co]: ...


Follow = Callable[[Progress], None]
"""Is told how far the work has come."""


class Meter:
    """Counts, and tells now and then."""

    def __init__(self, tell: Follow):
        self._tell = tell
        self._now = Progress("")
        self._began = self._counted_from = self._told = 0.0
        self._counting = False

    def enter(self, stage: str) -> None:
        self._now, self._counting = Progress(stage), False
        self._began = time.perf_counter()
        self._say(self._began)

    def counting(self, items: Countable[T], unit: str) -> Iterable[T]:
        return items if self._counting else self._counted(items, unit)

    def ticker(self, total: int, unit: str) -> Callable[[], None]:
        """Return what is to be called before each of ``total`` things."""
        if self._counting:  # what one thing holds is not counted beside the things
            return lambda: None
        self._begin(total, unit)
        done = itertools.count()
        return lambda: self._at(next(done))

    def _counted(self, items: Countable[T], unit: str) -> Iterator[T]:
        tick = self.ticker(len(items), unit)
        self._counting = True
        try:
            for item in items:
                tick()
                yield item
        finally:
            self._counting = False

    def _begin(self, total: int, unit: str) -> None:
        self._counted_from = time.perf_counter()
        self._now = replace(self._now, done=0, total=total, unit=unit)

    def _at(self, done: int) -> None:
        now = time.perf_counter()
        if now - self._told >= _APART:
            self._now = replace(self._now, done=done)
            self._say(now)

    def _say(self, now: float) -> None:
        self._told = now
        self._tell(replace(self._now, seconds=now - self._began, counted_for=now - self._counted_from))


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


def ticker(total: int, unit: str) -> Callable[[], None] | None:
    """Return what is to be called before each of ``total`` things; None where nobody follows."""
    followed = _METER.get()
    return None if followed is None else followed.ticker(total, unit)


def enter(stage: str) -> None:
    """Say that ``stage`` begins."""
    if (followed := _METER.get()) is not None:
        followed.enter(stage)


def counted(items: Countable[T], unit: str) -> Iterable[T]:
    """Return ``items``, of which the one is counted that is worked on."""
    followed = _METER.get()
    return items if followed is None else followed.counting(items, unit)


@contextmanager
def followed_by(progress: bool | Follow, *, ticking: bool = True) -> Iterator[None]:
    """Have ``progress`` be told of what is done in here; True stands for a line on the terminal.

    Who follows already goes on to, unless it is another function's turn. ``ticking``: see `shown`.
    """
    if not isinstance(progress, bool) and not callable(progress):
        raise UsageError(f"progress={progress!r}: it is True, or a function that is told")
    if not progress or (progress is True and _METER.get() is not None):
        yield
        return
    if progress is True:
        from fx_importer.diagnostics.progress_bar import shown  # which loads rich

        showing = shown(ticking=ticking)
    else:
        showing = nullcontext(progress)
    with showing as tell:
        token = _METER.set(None if tell is None else Meter(tell))
        try:
            yield
        finally:
            _METER.reset(token)


def unfollowed() -> None:
    """Have nobody told any more: in a fork."""
    _METER.set(None)
