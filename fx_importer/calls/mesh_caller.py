"""Call the model on each rank of a mesh, with functions that run on all devices together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from fx_importer.calls.backend import Value
from fx_importer.calls.caller import Caller
from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest

OnMesh = Callable[[Sequence[Sequence[Value]]], Sequence[tuple[Any, ...]]]
"""A function over all ranks: it takes the arguments of each rank, and returns the results of each rank."""


class MeshCaller:
    """Calls a module's functions with the inputs of each rank, and keeps the state of each rank between calls.

    Args:
        manifest: the module's manifest.
        functions: one function over all ranks per manifest function, by name.
        states: the initial state and the weights of each rank, as `Caller` takes them.

    Raises:
        UsageError: as `Caller` does.
    """

    def __init__(
        self, manifest: Manifest, functions: Mapping[str, OnMesh], states: Sequence[Mapping[str, torch.Tensor]]
    ):
        self._meetings = {name: _Meeting(function, len(states)) for name, function in functions.items()}
        self.ranks = tuple(
            Caller(manifest, {name: partial(meeting.call, rank) for name, meeting in self._meetings.items()}, state)
            for rank, state in enumerate(states)
        )
        """One caller per rank, with its own state and weights. A call on one rank waits for calls on all others."""
        self._lock = threading.Lock()

    def __call__(self, inputs: Sequence[Sequence[Any]]) -> list[Any]:
        """Call the only function of the module. ``inputs`` has the model's inputs, in order, for each rank.

        Returns:
            The outputs of the model for each rank.

        Raises:
            UsageError: for inputs that the program was not exported for.
        """
        return self._call(inputs, lambda rank: self.ranks[rank])

    def __getitem__(self, name: str) -> Callable[[Sequence[Sequence[Any]]], list[Any]]:
        """Return a callable for the function ``name``."""
        functions = [caller[name] for caller in self.ranks]
        return lambda inputs: self._call(inputs, functions.__getitem__)

    def _call(self, inputs: Sequence[Sequence[Any]], function: Callable[[int], Callable[..., Any]]) -> list[Any]:
        kinds = (
            [type(argument).__name__ for argument in inputs]
            if isinstance(inputs, (tuple, list))
            else type(inputs).__name__
        )
        if len(kinds) != len(self.ranks) or not {*kinds} <= {"tuple", "list"}:
            raise UsageError(
                f"a mesh of {len(self.ranks)} devices takes a list of as many tuples of inputs, one for each rank, and "
                f"got {kinds if isinstance(kinds, str) else ', '.join(kinds) or 'none'}"
            )
        with self._lock:
            return self._together(inputs, function)

    def _together(self, inputs: Sequence[Sequence[Any]], function: Callable[[int], Callable[..., Any]]) -> list[Any]:
        for meeting in self._meetings.values():
            meeting.reset()

        def run(rank: int) -> Any:
            try:
                return function(rank)(*inputs[rank])
            except BaseException:
                for meeting in self._meetings.values():
                    meeting.abort()
                raise

        with ThreadPoolExecutor(len(inputs)) as threads:
            calls = [threads.submit(run, rank) for rank in range(len(inputs))]
        errors = [error for call in calls if (error := call.exception()) is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):  # raised on ranks that waited for the failed one
                raise error
        return [call.result() for call in calls]


class _Meeting:
    """A function over all ranks, which runs once every rank has called it."""

    def __init__(self, function: OnMesh, size: int):
        self._function = function
        self._given: list[Sequence[Value]] = [()] * size
        self._results: Sequence[tuple[Any, ...]] = ()
        self.reset()

    def reset(self) -> None:
        self._barrier = threading.Barrier(len(self._given), action=self._run)

    def abort(self) -> None:
        self._barrier.abort()

    def call(self, rank: int, *arguments: Value) -> tuple[Any, ...]:
        """Return the results of ``rank``, once all ranks have called."""
        self._given[rank] = arguments
        self._barrier.wait()
        return self._results[rank]

    def _run(self) -> None:
        self._results = self._function(self._given)
