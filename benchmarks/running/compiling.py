"""How long the JIT compiles a lowered model, and how long it loads the same from the cache."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.run_time_models import load
from fx_importer import lower
from fx_importer.benchmarking.engine_process import use_threads
from fx_importer.caching.disk_store import DIRECTORY
from fx_importer.process.worker import Child, Note


@dataclass(frozen=True)
class Compiling:
    """CPU seconds of ``Lowered.caller`` on the JIT, float32, batch 1, with one thread."""

    model: str
    compiled: float
    cached: float
    """In another process, after one that compiled it."""

    @classmethod
    def measured(cls, model: str) -> Compiling:
        """Measure both, each in a process of its own, with a cache that is empty at first."""
        with tempfile.TemporaryDirectory() as cache:
            return cls(model, *(Child(f"{__name__}:answering").ask(model, (model, cache)) for _ in range(2)))


def answering(_note: Note) -> Callable[[tuple[str, str]], float]:
    """Return what measures a model with a directory of the cache."""
    return lambda request: _measured(*request)


def _measured(name: str, cache: str) -> float:
    os.environ[DIRECTORY] = cache
    use_threads(1)
    model, inputs, _ = load(name, 1, "fp32")
    lowered = lower(model, *inputs, output_type="linalg-on-tensors")
    start = time.process_time()
    lowered.caller(backend="jit")
    return time.process_time() - start
