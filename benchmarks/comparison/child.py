"""Runs in a process of its own: export a case to a file, or measure one side on that file.

    python -m benchmarks.comparison.child export NAME PROGRAM
    python -m benchmarks.comparison.child measure SIDE OUTPUT_TYPE PROGRAM RESULT

``PROGRAM`` is a file, or the name of a program that is made and not loaded. ``RESULT`` is a `Measurement` as JSON.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch_mlir import ir

from benchmarks.comparison.sides import SIDES, StageClock
from benchmarks.comparison.summary import Measurement


def export(name: str, program: str) -> None:
    """Export the program of that name and save it."""
    from benchmarks.comparison import cases

    torch.export.save(cases.export(name), program)


def _read(program: str) -> ExportedProgram:
    if program.endswith(".pt2"):
        return torch.export.load(program)
    from benchmarks.comparison.cases import MADE  # imported here: it imports transformers, which a side does not need

    return MADE[program]()


def measure(side: str, output_type: str, program_path: str, result_path: str) -> None:
    """Lower the saved program to ``output_type`` with ``side`` and write its cost."""
    torch.set_num_threads(1)
    clock = StageClock()
    lower = SIDES[side](clock)
    program = _read(program_path)
    # Costs paid once per process (lazy imports, dialects, caches) are not the program's.
    lower(torch.export.export(nn.Linear(2, 2).eval(), (torch.ones(1, 2),)), output_type)

    before = _start_peak()
    clock.reset()
    start = time.perf_counter()
    module = lower(program, output_type)
    stages, wall = clock.read(), time.perf_counter() - start
    peak = _kilobytes("VmHWM") - before
    measurement = Measurement(
        stages=stages,
        wall_seconds=wall,
        peak_bytes=peak * 1024,
        weights_bytes=weights_bytes(program),
        operations=_count(module.operation),
    )
    Path(result_path).write_text(json.dumps(dataclasses.asdict(measurement)))


def weights_bytes(program: ExportedProgram) -> int:
    """Return the size of the program's parameters, buffers and constants; shared memory counts once."""
    held = [*program.state_dict.values(), *program.constants.values()]
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in held if isinstance(x, torch.Tensor)}
    return sum(storage.nbytes() for storage in storages.values())


def _start_peak() -> int:
    """Reset the peak. Return the memory in use, in kB: the program, its weights, and the libraries."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # otherwise memory freed by loading would be reused without being counted
    Path("/proc/self/clear_refs").write_text("5")
    return _kilobytes("VmRSS")


def _kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def _count(operation: Any) -> int:
    """Return the number of operations nested in ``operation``."""
    found = 0

    def see(_: Any) -> ir.WalkResult:
        nonlocal found
        found += 1
        return ir.WalkResult.ADVANCE

    operation.walk(see)
    return found - 1


if __name__ == "__main__":
    {"export": export, "measure": measure}[sys.argv[1]](*sys.argv[2:])
