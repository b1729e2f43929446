"""Measure a model on several engines that take turns, each in its own process."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from fx_importer.benchmarking.engine_process import Load, Loading, Turn
from fx_importer.benchmarking.engines import Candidate
from fx_importer.benchmarking.measurement import Measurement, quartiles
from fx_importer.diagnostics.progress import counted
from fx_importer.errors import UsageError
from fx_importer.options import Limits
from fx_importer.process.scratch import Scratch
from fx_importer.process.worker import Child

_TURN = 0.05
"""Minimum seconds of a turn; short calls are repeated to fill it."""
_MOST = 10_000
"""Maximum calls in a turn."""
_FEWEST = 3
"""Minimum turns before ``seconds`` applies, unless a single turn takes that long; see `measure`."""
_ENOUGH = 5
"""Turns after which an engine whose times are close gets no more."""
_WARM = 1.0
"""Calls that take longer than this many seconds get no warm-up call before a turn."""


def measure(
    load: Load,
    engines: Sequence[Candidate],
    threads: int,
    turns: int,
    limits: Limits,
    *,
    seconds: float = math.inf,
    close: float = 0.0,
    loading_at_once: int = 1,
) -> list[Measurement]:
    """Return one measurement per engine. The first of ``engines`` is eager.

    All processes are alive at the same time and only one works at a time, so that background load affects all engines
    alike. If an engine fails, or loads longer than ``limits``, its measurement reports the problem.

    Args:
        load: returns the model and its inputs; called in each process.
        engines: engines to measure.
        threads: threads per engine.
        turns: maximum turns per engine.
        limits: limits of one request to an engine.
        seconds: once its calls have taken this long together, an engine gets at most `_FEWEST` turns; one where a call
            takes longer.
        close: an engine with a relative difference of quartiles of at most this much gets no more than `_ENOUGH` turns.
        loading_at_once: how many engines load concurrently; with one thread, each uses its own processor.

    Raises:
        UsageError: if the machine has fewer processors than ``threads``; or if the model cannot be loaded, or does not
            run in eager PyTorch.
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= threads <= there:
        raise UsageError(f"{threads} threads: this process may use {there} processors, so 1 to {there} are accepted")
    scratch = Scratch()
    runs = [_Run(engine) for engine in engines]
    first, *others = (
        partial(run.start, Loading(load, run.engine, threads, i % loading_at_once, scratch.path / "results"), limits)
        for i, run in enumerate(runs)
    )
    first()  # the others compare their results with eager's
    if runs[0].problem:
        raise UsageError(f"the model does not load and run in eager PyTorch: {runs[0].problem}")
    with ThreadPoolExecutor(loading_at_once) as pool:
        for started in counted([pool.submit(each) for each in others], "engines"):
            started.result()
    for run in runs:
        run.choose_calls(limits)
    for _ in counted(range(turns), "turns"):
        for run in runs:
            if not run.is_enough(seconds, close):
                run.turn(limits)
    return [run.measurement() for run in runs]


@dataclass
class _Run:
    """One engine in its process."""

    engine: Candidate
    child: Child | None = None
    problem: str = ""
    measured: dict[str, float] = field(default_factory=dict[str, float])
    calls: list[float] = field(default_factory=list[float])
    each: int = 1
    """Calls per turn."""
    warm_up: bool = False
    """Whether a turn starts with an untimed call."""

    def is_enough(self, seconds: float, close: float) -> bool:
        """Return whether the engine needs no more turns; see `measure`."""
        turns, spent = len(self.calls), sum(self.calls) * self.each
        if turns >= _ENOUGH:
            low, high = quartiles(self.calls)
            if high - low <= close * low:
                return True
        return spent >= seconds and (turns >= _FEWEST or spent >= turns * seconds > 0)

    def start(self, loading: Loading, limits: Limits) -> None:
        try:
            self.engine.check()
            self.child = Child("fx_importer.benchmarking.engine_process:Session")
            loaded = self.child.ask(self.engine.name, loading, limits)
            self.measured = vars(loaded)
        except Exception as error:  # models and engines raise errors of any kind
            self._failed(error)

    def choose_calls(self, limits: Limits) -> None:
        """Choose the calls per turn. No other engine may run meanwhile, or slow calls would make turns too short."""
        for _ in range(2):  # the second time it is warm
            if (seconds := self._ask_turn(limits)) is None:
                return
            self.each = min(max(math.ceil(_TURN / max(seconds, 1e-9)), 1), _MOST)
            self.warm_up = seconds <= _WARM
            if not self.warm_up:
                return

    def turn(self, limits: Limits) -> None:
        if (seconds := self._ask_turn(limits)) is not None:
            self.calls.append(seconds)

    def _ask_turn(self, limits: Limits) -> float | None:
        """Return the seconds of a call in a turn; None if the engine has failed."""
        if self.child is None:
            return None
        try:
            seconds, memory = self.child.ask(self.engine.name, Turn(self.each, self.warm_up), limits)
        except Exception as error:  # models and engines raise errors of any kind
            self._failed(error)
            return None
        self.measured["call_memory"] = memory
        return seconds

    def _failed(self, error: Exception) -> None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self.problem = ": ".join(lines[:2]) or type(error).__name__
        self.child = None  # its process ends

    def measurement(self) -> Measurement:
        if self.problem:
            return Measurement(self.engine.name, problem=self.problem)
        return Measurement(self.engine.name, calls=tuple(self.calls), **self.measured)  # pyright: ignore[reportArgumentType]
