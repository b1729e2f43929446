"""Memory of processes that only run a model: in eager PyTorch, and as a saved module with code from the cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fx_importer.benchmarking.engine_process import example_of, forget_peak, peak_memory, use_threads
from fx_importer.caching.disk_store import DIRECTORY
from fx_importer.process.worker import Child, Note

_CALLS = 3
Request = tuple[str, str, int, str, Path]
"""What to do, and for `SavedModule` the model, the batch and the dtype; and a directory."""


@dataclass(frozen=True)
class SavedModule:
    """Bytes at the peak of calls after the first one, with one thread."""

    model: str
    batch: int
    dtype: str
    eager: int
    """In a process that makes the model and calls it."""
    saved: int
    """In a process that loads its saved module, and inputs from a file."""

    @classmethod
    def measured(cls, model: str, batch: int, dtype: str) -> SavedModule:
        """Lower the model, save it and compile it into a cache; then measure both, each in a process of its own."""
        with tempfile.TemporaryDirectory() as directory:
            asked = (Child(f"{__name__}:answering") for _ in range(3))
            requests = [(what, model, batch, dtype, Path(directory)) for what in ("save", "eager", "saved")]
            _, eager, saved = (child.ask(model, request) for child, request in zip(asked, requests, strict=True))
        return cls(model, batch, dtype, eager, saved)

    @property
    def ratio(self) -> float:
        """Memory of the saved module, divided by eager's."""
        return self.saved / self.eager


def answering(_note: Note) -> Callable[[Request], int]:
    """Return what answers a request in a process of its own."""
    return _answer


def _answer(request: Request) -> int:
    what, model, batch, dtype, directory = request
    os.environ[DIRECTORY] = str(directory / "cache")
    use_threads(1)
    with torch.no_grad():
        return {"save": _save, "eager": _run_eager, "saved": _run_saved}[what](model, batch, dtype, directory)


def _save(model: str, batch: int, dtype: str, directory: Path) -> int:
    from benchmarks.run_time_models import load
    from fx_importer import lower

    example = example_of(partial(load, model, batch, dtype))
    lowered = lower(example.model, *example.args, output_type="linalg-on-tensors")
    lowered.save(directory / "module.mlirbc")
    lowered.caller(backend="jit")
    torch.save(example.args, directory / "inputs.pt")
    return 0


def _run_eager(model: str, batch: int, dtype: str, _directory: Path) -> int:
    from benchmarks.run_time_models import load

    example = example_of(partial(load, model, batch, dtype))
    return _peak(example.function, example.args)


def _run_saved(_model: str, _batch: int, _dtype: str, directory: Path) -> int:
    from fx_importer import load

    inputs = torch.load(directory / "inputs.pt")
    return _peak(load(directory / "module.mlirbc").caller(backend="jit"), inputs)


def _peak(call: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> int:
    call(*inputs)
    forget_peak()
    for _ in range(_CALLS):
        call(*inputs)
    return peak_memory()
