"""Overhead of calls: programs that compute almost nothing, in eager PyTorch and by everything that calls for us.

    python benchmarks/call_time.py [--json times.json]

Calls are repeated in short runs, in turns, and the shortest run of each counts: other processes only make runs longer.
Inductor takes part where there is a C++ compiler.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from fx_importer import lower
from fx_importer.dynamo import backend

Call = Callable[[], object]


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add once."""
    return x + y


def add_ten(*inputs: torch.Tensor) -> torch.Tensor:
    """Add ten arguments, with nine additions."""
    total = inputs[0]
    for each in inputs[1:]:
        total = total + each
    return total


def shortest(calls: Mapping[str, Call], calls_in_a_run: int = 20, runs: int = 2000) -> dict[str, float]:
    """Return the microseconds of each call, in the shortest of the runs."""
    found = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(runs):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(calls_in_a_run):
                call()
            found[name] = min(found[name], (time.perf_counter() - start) / calls_in_a_run * 1e6)
    return found


def calls_of(function: Callable[..., torch.Tensor], count: int, *, training: bool) -> dict[str, Call]:
    """Return calls of ``function`` with ``count`` vectors of four elements; if ``training``, with the backward pass."""
    inputs = [torch.randn(4, requires_grad=training and i == 0) for i in range(count)]
    lowered = lower(function, *inputs, output_type="linalg-on-tensors")
    functions: dict[str, Callable[..., torch.Tensor]] = {"eager": function}
    if not training:
        functions |= {"Lowered.run": lowered.run}
    if shutil.which("g++") or shutil.which("clang++"):
        functions["Inductor"] = torch.compile(function)
    functions["torch.compile, fx_importer"] = torch.compile(function, backend=backend)
    if training:
        return {name: lambda each=each: each(*inputs).sum().backward() for name, each in functions.items()}
    return {name: lambda each=each: each(*inputs) for name, each in functions.items()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the times to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    times: dict[str, dict[str, float]] = {}
    for name, function, count, training in (
        ("one addition", add, 2, False),
        ("ten arguments", add_ten, 10, False),
        ("one addition, forward and backward", add, 2, True),
    ):
        torch.compiler.reset()
        times[name] = shortest(calls_of(function, count, training=training))
    print("| program | caller | microseconds a call |\n|---|---|---|")
    for name, found in times.items():
        for caller, microseconds in found.items():
            print(f"| {name} | {caller} | {microseconds:.1f} |")
    if options.json:
        options.json.write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
