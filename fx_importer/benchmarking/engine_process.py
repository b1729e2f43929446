"""The process of one engine, which loads a model and calls it on request."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.benchmarking.engines import Candidate, Example
from fx_importer.engines.device_names import CPU, torch_device_named
from fx_importer.errors import UsageError
from fx_importer.process.worker import Note

Load = Callable[[], tuple[Any, Any, Any]]
"""Return the model, its positional inputs and its keyword inputs, the same on each call. It is picklable."""


@dataclass(frozen=True)
class Loading:
    """A request to load a model on an engine and call it once."""

    load: Load
    engine: Candidate
    threads: int
    first_processor: int
    """The index of the first processor to use, among those available to the process."""
    results: Path
    """The file with eager's results: eager writes it, and the other engines compare against it."""
    device: str = CPU


@dataclass(frozen=True)
class Loaded:
    """The answer: times in seconds, memory in bytes."""

    load: float
    """Time before the first call."""
    first_call: float
    memory: int
    """Peak memory of this process, plus the peak of its largest child."""
    difference: float
    """The largest absolute difference from eager, divided by the largest magnitude of eager's tensor."""
    passed: bool
    """Whether all results are within the tolerances of `compare`."""


@dataclass(frozen=True)
class Turn:
    """A request for several calls. The answer is the seconds per call, and the peak memory of the calls in bytes."""

    calls: int
    warm_up: bool = False
    """Whether an untimed call comes first, since threads may sleep and caches may hold other engines' data."""


class Session:
    """Answers one `Loading`, then any number of `Turn`."""

    def __init__(self, _note: Note):
        self._call: Callable[..., Any] = _not_loaded
        self._args: Any = ()
        self._kwargs: Any = {}
        self._clock, self._loading_clock = time.perf_counter, time.perf_counter
        self._synchronize: Callable[[], object] = _nothing

    def __call__(self, request: Loading | Turn) -> Any:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._load(request) if isinstance(request, Loading) else self._turn(request)

    def _load(self, request: Loading) -> Loaded:
        use_threads(request.threads, request.first_processor)
        device = torch_device_named(request.device)
        if device.type != CPU:
            self._synchronize = partial(torch.get_device_module(device).synchronize, device)
        elif request.threads == 1:  # CPU time, which excludes other processes
            self._clock, self._loading_clock = time.process_time, _with_children
        example = on_device(example_of(request.load), device)
        self._args, self._kwargs = example.args, example.kwargs
        start = self._loading_clock()
        self._call = request.engine.prepare(example)
        loaded = self._loading_clock()
        del example
        outputs = self._call(*self._args, **self._kwargs)
        self._synchronize()
        end = self._loading_clock()
        memory = peak_memory() + largest_child()
        difference, passed = _compared(outputs, request.results)
        del outputs
        gc.collect()
        forget_peak()
        return Loaded(loaded - start, end - loaded, memory, difference, passed)

    def _turn(self, turn: Turn) -> tuple[float, int]:
        call, args, kwargs = self._call, self._args, self._kwargs
        if turn.warm_up:
            call(*args, **kwargs)
            self._synchronize()
        start = self._clock()
        for _ in range(turn.calls):
            call(*args, **kwargs)
        self._synchronize()
        return (self._clock() - start) / turn.calls, peak_memory()


def _with_children() -> float:
    """Return the CPU seconds of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def _nothing() -> None:
    pass


def _not_loaded(*_: Any, **__: Any) -> Any:
    raise AssertionError("a model is loaded first")


def example_of(load: Load) -> Example:
    """Load a model, with the same random seeds in each process."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    model, args, kwargs = load()
    if isinstance(model, ExportedProgram):
        if model.example_inputs is None:
            raise UsageError("the program has no example inputs: export it again with them")
        args, kwargs = model.example_inputs
    return Example(model, args, kwargs)


def on_device(example: Example, device: torch.device) -> Example:
    """Return ``example`` with its tensors on ``device``."""
    if device.type == CPU:
        return example
    model = example.model
    if isinstance(model, ExportedProgram):
        from torch.export.passes import move_to_device_pass

        model = move_to_device_pass(model, device)
    elif isinstance(model, torch.nn.Module):
        model = model.to(device)
    inputs: Any = pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(device), (tuple(example.args), dict(example.kwargs))
    )
    return Example(model, *inputs)


def use_threads(threads: int, first: int = 0) -> None:
    """Limit this process to ``threads`` processors, where the OS supports it, and PyTorch to as many threads.

    ``first`` is the index of the first one, among the processors available to the process.
    """
    if hasattr(os, "sched_setaffinity"):
        there = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, [there[(first + i) % len(there)] for i in range(threads)])
    torch.set_num_threads(threads)


def _compared(actual: Any, results: Path) -> tuple[float, bool]:
    leaves = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, pytree.tree_leaves(actual))
    if not results.exists():
        torch.save(leaves, results)
        return 0.0, True
    expected = torch.load(results, weights_only=True)
    if len(leaves) != len(expected):
        return float("inf"), False
    from fx_importer.verification.comparison import compare  # imported here to keep it out of eager's process

    compared = [compare(a, b) for a, b in zip(leaves, expected, strict=True)]
    differences = [
        float("inf") if comparison.problem else comparison.max_absolute / (comparison.magnitude or 1.0)
        for comparison in compared
    ]
    return max(differences, default=0.0), all(comparison.passed for comparison in compared)


def peak_memory() -> int:
    """Return the peak memory of this process since `forget_peak`, in bytes; without ``/proc``, since its start."""
    status = Path("/proc/self/status")
    if status.exists():
        _, _, rest = status.read_text().partition("VmHWM:")
        return int(rest.split(maxsplit=1)[0]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def largest_child() -> int:
    """Return the peak memory of the largest child that this process has waited for, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Reset the peak memory counter."""
    with contextlib.suppress(OSError):  # without /proc, the peak covers the whole run
        Path("/proc/self/clear_refs").write_text("5")
