"""Progress of long work, reported to a callback a few times per second; nothing is counted without a callback."""

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

_INTERVAL = 0.2
"""Seconds between two updates within a stage."""

_MIN_FRACTION_AND_SECONDS = 0.05, 1.0
"""Fraction of a stage and seconds that must have passed before the remaining time is estimated."""


@dataclass(frozen=True)
class Progress:
    """Progress of a lowering."""

    stage: str
    done: int = 0
    total: int | None = None
    """None if nothing can be counted, as in torch.export."""
    unit: str = ""
    """The unit that is counted: ``"nodes"``, ``"passes"``."""
    seconds: float = 0.0
    """Seconds since the stage began."""
    counted_for: float = 0.0
    """Seconds since counting began."""

    @property
    def remaining(self) -> float | None:
        """Estimated remaining seconds at the rate so far; None without a good estimate.

        Passes have none: one may take a thousand times as long as the next.
        """
        part, least = _MIN_FRACTION_AND_SECONDS
        if not self.total or self.unit == "passes" or self.done < part * self.total or self.counted_for < least:
            return None
        return self.counted_for * (self.total - self.done) / self.done


class Countable(Protocol[T_co]):
    """An iterable with a length; the nodes of an FX graph are no `Collection`."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[T_co]: ...


ProgressCallback = Callable[[Progress], None]
"""Called with the progress of the work."""


class Meter:
    """Counter that reports to a callback at intervals."""

    def __init__(self, callback: ProgressCallback):
        self._tell = callback
        self._now = Progress("")
        self._began = self._counted_from = self._reported = 0.0
        self._counting = False

    def enter(self, stage: str) -> None:
        self._now, self._counting = Progress(stage), False
        self._began = time.perf_counter()
        self._report(self._began)

    def counting(self, items: Countable[T], unit: str) -> Iterable[T]:
        return items if self._counting else self._counted(items, unit)

    def ticker(self, total: int, unit: str) -> Callable[[], None]:
        """Return a function to call before each of ``total`` items."""
        if self._counting:  # nested items are not counted
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
        if now - self._reported >= _INTERVAL:
            self._now = replace(self._now, done=done)
            self._report(now)

    def _report(self, now: float) -> None:
        self._reported = now
        self._tell(replace(self._now, seconds=now - self._began, counted_for=now - self._counted_from))


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


def is_followed() -> bool:
    """Return whether progress is reported."""
    return _METER.get() is not None


def ticker(total: int, unit: str) -> Callable[[], None] | None:
    """Return a function to call before each of ``total`` items; None if progress is not reported."""
    meter = _METER.get()
    return None if meter is None else meter.ticker(total, unit)


_STAGE: ContextVar[str] = ContextVar("stage", default="")


def current_stage() -> str:
    """Return the name of the stage that began last; empty before the first."""
    return _STAGE.get()


def enter(stage: str) -> None:
    """Report that ``stage`` begins."""
    _STAGE.set(stage)
    if (meter := _METER.get()) is not None:
        meter.enter(stage)


def counted(items: Countable[T], unit: str) -> Iterable[T]:
    """Return ``items``, counted while they are iterated over."""
    meter = _METER.get()
    return items if meter is None else meter.counting(items, unit)


@contextmanager
def reporting_progress(progress: bool | ProgressCallback, *, auto_refresh: bool = True) -> Iterator[None]:
    """Report the progress of the body to ``progress``; True is for a progress line on the terminal.

    If progress is reported already, True keeps the callback. ``auto_refresh``: see `progress_line`.
    """
    if not isinstance(progress, bool) and not callable(progress):
        raise UsageError(f"progress={progress!r}: expected True, or a function that takes a Progress")
    if not progress or (progress is True and _METER.get() is not None):
        yield
        return
    if progress is True:
        from fx_importer.diagnostics.progress_bar import progress_line  # loads rich

        showing = progress_line(auto_refresh=auto_refresh)
    else:
        showing = nullcontext(progress)
    with showing as callback:
        token = _METER.set(None if callback is None else Meter(callback))
        try:
            yield
        finally:
            _METER.reset(token)


def stop_reporting() -> None:
    """Stop reporting, in a forked process."""
    _METER.set(None)
