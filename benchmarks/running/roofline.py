"""What the machine can do at most: a measured matrix product and memory copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.run_time_models import DTYPES
from fx_importer.benchmarking.engine_process import use_threads
from fx_importer.process.worker import Child, Note

_SIZE = 1024
_COPIED = 256 * 2**20


@dataclass(frozen=True)
class Roofline:
    """Rates of PyTorch's matrix product and copy."""

    threads: int
    flops: dict[str, float]
    """Floating-point operations a second by dtype."""
    copied: float
    """Bytes a second that a copy reads, which writes as many."""

    @classmethod
    def measured(cls, threads: int, dtypes: Sequence[str]) -> Roofline:
        """Measure them in a process of its own."""
        return Child("benchmarks.running.roofline:answering").ask("the roofline", (threads, dtypes))

    def seconds(self, flops: int, weights: int, dtype: str) -> float:
        """Return the least time of a call: that of its products, or of reading its weights once."""
        return max(flops / self.flops[dtype], weights / self.copied)


def answering(_note: Note) -> Callable[[tuple[int, Sequence[str]]], Roofline]:
    """Return what measures with a number of threads, in dtypes."""
    return lambda request: _measured(*request)


def _measured(threads: int, dtypes: Sequence[str]) -> Roofline:
    use_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    flops: dict[str, float] = {}
    for name in dtypes:
        a = torch.randn(_SIZE, _SIZE, dtype=DTYPES[name])
        flops[name] = 2 * _SIZE**3 / _least(clock, lambda a=a: torch.mm(a, a))
    source, target = (torch.ones(_COPIED, dtype=torch.uint8) for _ in range(2))
    return Roofline(threads, flops, _COPIED / _least(clock, lambda: target.copy_(source)))


def _least(clock: Callable[[], float], function: Callable[[], Any]) -> float:
    def once() -> float:
        start = clock()
        function()
        return clock() - start

    return min(once() for _ in range(5))


def flops_and_bytes(load: Callable[[], tuple[Any, Any, Any]]) -> tuple[int, int]:
    """Return the floating-point operations of the products and convolutions of a call, and the bytes of the weights."""
    from torch.utils.flop_counter import FlopCounterMode

    model, args, kwargs = load()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*args, **kwargs)
    return counter.get_total_flops(), sum(each.nbytes for each in model.state_dict().values())
