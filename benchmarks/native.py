"""Build models of testing.zoo as native code, compare with eager, and renew docs/measurements/native.md.

python -m benchmarks.native --json zoo.json                        # the small models that the file lacks
python -m benchmarks.native --json zoo.json --models minilm bert_base --targets host aarch64
python -m benchmarks.native --json zoo.json --write                # the page, from the file
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.house import commit
from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew
from benchmarks.run_time_models import load
from fx_importer import FxImporterError, lower
from fx_importer.native.build import Built
from fx_importer.results.lowered import Lowered
from testing.native_calls import NativeCaller
from testing.native_programs import RUNNERS, missing_runner, run_on
from testing.op_cases import differences
from testing.zoo import ZOO

PAGE = DOCS / "measurements" / "native.md"
_TURNS = 5
_HOST = "x86-64-v3"
TARGETS = {"host": "here", "c": "C source", "aarch64": "AArch64", "riscv64": "RISC-V", "wasm32-simd": "WebAssembly"}
"""The columns of the page."""
_OTHERS = ("mobilenet", "llama_1b_layer_prefill")
"""Models of `run_time_models`, with a batch of one."""


def measure(name: str, folder: Path, targets: Sequence[str]) -> Row:
    """Build and run the model ``name`` for ``targets``, and time calls for this machine."""
    row: Row = {"model": name}
    with torch.no_grad():
        model, args, kwargs = load(name, 1, "fp32") if name in _OTHERS else ZOO[name].build()
        expected = pytree.tree_leaves(model(*args, **kwargs))
        lowered = lower(torch.export.export(model, args, kwargs), output_type="linalg-on-tensors")
        begin = time.perf_counter()
        built = lowered.build(folder / name, target=_HOST)
        row["build"] = time.perf_counter() - begin
        call = NativeCaller(lowered, built)
        row["host"] = _verdict(call(*args, **kwargs), expected)
        inputs = pytree.tree_leaves((args, kwargs))
        prepared = call.prepared(inputs)
        row["eager"], row["native"] = _times([lambda: model(*args, **kwargs), prepared])
    row["bytes"] = built.files[0].stat().st_size - built.library.weights_bytes
    row["arena"] = built.library.entries[0].arena
    for target in targets:
        if target != "host" and not (target in RUNNERS and missing_runner(target)):
            try:
                found = _results(target, lowered, folder / f"{name}_{target.partition('-')[0]}", inputs)
                row[target] = _verdict(found, expected)
            except (RuntimeError, FxImporterError) as error:
                row[target] = str(error).splitlines()[0][:100]
    return row


def _results(target: str, lowered: Lowered, path: Path, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    if target in RUNNERS:
        return run_on(target, lowered, path, inputs)
    built = lowered.build(path, kind="c")
    shared = path.with_suffix(".so")
    subprocess.run(["gcc", "-std=c99", "-O2", "-shared", "-fPIC", built.files[0], "-lm", "-o", shared], check=True)
    return NativeCaller(lowered, Built((shared,), built.library))(*inputs)


def _verdict(results: Sequence[Any], expected: Sequence[Any]) -> str:
    found = [difference for pair in zip(results, expected, strict=True) if (difference := differences(*pair))]
    return "equal" if not found else found[0][:60]


def _times(calls: Sequence[Any]) -> list[float]:
    """Return the median seconds of the CPU of each of ``calls``, which take turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(_TURNS):
        for call, times in zip(calls, found, strict=True):
            call()
            begin = time.process_time()
            call()
            times.append(time.process_time() - begin)
    return [statistics.median(times) for times in found]


def page(rows: Sequence[Row]) -> str:
    """Return the section of the page."""
    counts = [
        f"{found.count('equal')} of {len(found)} {label}"
        for target, label in TARGETS.items()
        if (found := [row[target] for row in rows if target in row])
    ]
    headings = ["model", *TARGETS.values(), "code, KB", "arena, KB", "build, s", "eager, ms", "native, ms"]
    lines = [
        f"Written by `python -m benchmarks.native` at {commit('HEAD')}: models of `testing/zoo.py`, a batch of two",
        f"(one of {' and '.join(_OTHERS)}), one thread. Times are medians of the CPU's",
        f"milliseconds in a call, for the target `{_HOST}`. For AArch64 and RISC-V, static programs run in QEMU's",
        "user mode; C source is compiled by `gcc -std=c99 -O2`; WebAssembly with SIMD runs in node by",
        "WASI. Tolerances are as in the tests. Empty cells were not run.",
        "",
        f"Equal to eager: {', '.join(counts)}.",
        "",
        f"| {' | '.join(headings)} |",
        "|---|" + "---|" * len(TARGETS) + "---:|" * 5,
    ]
    for row in rows:
        cells = [row["model"], *(row.get(target, "") for target in TARGETS)]
        cells += [f"{row[key] / 1e3:,.0f}" for key in ("bytes", "arena")]
        cells += [f"{row['build']:.1f}", *(f"{row[key] * 1e3:.2f}" for key in ("eager", "native"))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what the file lacks, or write the page."""
    parser = parser_of(__doc__, PAGE)
    small = [name for name, model in ZOO.items() if model.small]
    parser.add_argument("--models", nargs="*", default=small, choices=(*ZOO, *_OTHERS))
    parser.add_argument("--targets", nargs="*", default=[*TARGETS], choices=TARGETS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    done = {row["model"] for row in read_rows(arguments.json)}
    for name in arguments.models if not arguments.write else ():
        if name not in done:
            with tempfile.TemporaryDirectory() as folder:
                add_row(arguments.json, row := measure(name, Path(folder), arguments.targets))
            print(row, file=sys.stderr, flush=True)
    print(text := page(read_rows(arguments.json)))
    if arguments.write:
        renew(PAGE, "zoo", text)


if __name__ == "__main__":
    main()
