"""Build models as native code for this machine and AArch64, compare with eager, and write docs/measurements/native.md.

python -m benchmarks.native                          # the small models of testing.zoo
python -m benchmarks.native --models resnet50        # these
python -m benchmarks.native --models gru --aoti      # AOTInductor too, which takes long
"""

from __future__ import annotations

import argparse
import ctypes
import platform
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.house import commit
from fx_importer import FxImporterError, lower
from fx_importer.native.build import Built
from fx_importer.native.library import inputs_of, outputs_of
from fx_importer.results.lowered import Lowered
from testing.native_calls import NativeCaller, native_dtype
from testing.op_cases import differences
from testing.zoo import ZOO

PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "native.md"
_TURNS = 5
_HOST = "x86-64-v3"


@dataclass(frozen=True)
class Row:
    """One model."""

    model: str
    host: str
    """Equal to eager, or what is wrong."""
    aarch64: str
    """Likewise, in qemu."""
    library_bytes: int = 0
    arena_bytes: int = 0
    build_seconds: float = 0
    eager: float = 0
    native: float = 0
    """Seconds of a call."""
    aoti: float | None = None


def measure(name: str, folder: Path, aoti: bool) -> Row:
    """Build, compare and time the model ``name`` of the zoo."""
    with torch.no_grad():
        model, args, kwargs = ZOO[name].build()
        expected = pytree.tree_leaves(model(*args, **kwargs))
        lowered = lower(torch.export.export(model, args, kwargs), output_type="linalg-on-tensors")
        begin = time.perf_counter()
        try:
            built = lowered.build(folder / name, target=_HOST)
        except FxImporterError as error:
            return Row(name, str(error).splitlines()[0], "")
        seconds = time.perf_counter() - begin
        call = NativeCaller(lowered, built)
        host = _verdict(call(*args, **kwargs), expected)
        times = _times([lambda: model(*args, **kwargs), lambda: call(*args, **kwargs)])
        other = _aoti(model, args, kwargs, folder) if aoti else None
    entry = built.library.entries[0]
    size = built.files[0].stat().st_size
    arm = _on_aarch64(lowered, folder / name, (args, kwargs), expected)
    return Row(name, host, arm, size, entry.arena, seconds, times[0], times[1], other)


def _verdict(results: Sequence[Any], expected: Sequence[Any]) -> str:
    found = [each for pair in zip(results, expected, strict=True) for each in differences(*pair)]
    return "equal" if not found else str(found[0])[:60]


def _times(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the least seconds of each of ``calls``, which take turns."""
    least = [float("inf")] * len(calls)
    for _ in range(_TURNS):
        for number, call in enumerate(calls):
            call()
            begin = time.perf_counter()
            call()
            least[number] = min(least[number], time.perf_counter() - begin)
    return least


def _on_aarch64(lowered: Lowered, path: Path, inputs: tuple[Any, Any], expected: Sequence[torch.Tensor]) -> str:
    """Run the program of the model in QEMU, and compare its results."""
    if (qemu := shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")) is None:
        return "no qemu-aarch64"
    built: Built = lowered.build(path, target="aarch64", kind="executable")
    entry = built.library.entries[0]
    leaves = pytree.tree_leaves(inputs)
    files = [path.with_name(f"{path.name}_{number}.raw") for number in range(len(leaves) + len(outputs_of(entry)))]
    for file, leaf, value in zip(files, leaves, inputs_of(entry), strict=False):
        tensor = leaf.contiguous().to(native_dtype(value))
        file.write_bytes(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
    done = subprocess.run(
        [qemu, built.files[0], entry.c_name, "1", *files], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return f"status {done.returncode}: {done.stderr[:60]}"
    results = [
        torch.frombuffer(bytearray(file.read_bytes()), dtype=native_dtype(value)).reshape(tensor.shape)
        for file, value, tensor in zip(files[len(leaves) :], outputs_of(entry), expected, strict=True)
    ]
    return _verdict(results, expected)


def _aoti(model: torch.nn.Module, args: Any, kwargs: Any, folder: Path) -> float:
    """Return the seconds of a call of AOTInductor's package."""
    program = torch.export.export(model, args, kwargs)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    package = torch._inductor.aoti_load_package(path)
    return _times([lambda: package(*args, **kwargs)])[0]


def page(rows: Sequence[Row]) -> str:
    """Return the text of the page."""
    equal = [sum(getattr(row, side) == "equal" for row in rows) for side in ("host", "aarch64")]
    lines = [
        "# Native code, model by model",
        "",
        f"Written by `python -m benchmarks.native` at {commit('HEAD')} on {platform.machine()}, on a busy machine:",
        "models of `testing/zoo.py`, batch of two, one thread. Times are the least milliseconds of a call",
        f"(of {_TURNS}; ours from Python), for the target `{_HOST}`. For AArch64, a static program ran in qemu-user.",
        "Tolerances are those of the tests.",
        "",
        f"Equal to eager: {equal[0]} of {len(rows)} on this machine, {equal[1]} of {len(rows)} on AArch64.",
        "",
        "| model | here | AArch64 | library, KB | arena, KB | build, s | eager, ms | native, ms | AOTInductor, ms |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        times = (row.eager, row.native, row.aoti)
        eager, native, other = ("" if seconds is None else f"{seconds * 1e3:.2f}" for seconds in times)
        lines.append(
            f"| {row.model} | {row.host} | {row.aarch64} | {row.library_bytes / 1e3:,.0f} | "
            f"{row.arena_bytes / 1e3:,.0f} | {row.build_seconds:.1f} | {eager} | {native} | {other} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    small = [name for name, model in ZOO.items() if model.small]
    parser.add_argument("--models", nargs="*", default=small, choices=ZOO)
    parser.add_argument("--aoti", nargs="*", default=[], choices=ZOO, help="models that AOTInductor compiles too")
    parser.add_argument("--write", action="store_true", help="write the page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, Path(folder), name in arguments.aoti))
        print(rows[-1], flush=True)
    text = page(rows)
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
