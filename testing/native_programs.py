"""Programs of ``kind="executable"`` for other processors, run by QEMU's user mode and by node."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from fx_importer.native.library import inputs_of, outputs_of
from fx_importer.results.lowered import Lowered
from testing.native_calls import native_dtype

_WASI = """
import { WASI } from "node:wasi";
import { readFileSync } from "node:fs";
const wasi = new WASI({ version: "preview1", args: process.argv.slice(1), preopens: { "/": "/" } });
const module = await WebAssembly.compile(readFileSync(process.argv[1]));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
"""
RUNNERS: Mapping[str, Sequence[str]] = {
    "aarch64": ("qemu-aarch64",),
    "riscv64": ("qemu-riscv64",),
    "wasm32-simd": ("node", "--no-warnings", "--input-type=module", "--eval", _WASI),
}
"""What runs a program for a target."""


def missing_runner(target: str) -> str:
    """Return the program that is not installed, or an empty string."""
    return "" if shutil.which(RUNNERS[target][0]) else RUNNERS[target][0]


def run_on(target: str, lowered: Lowered, path: Path, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Build the program ``path`` for ``target``, and return its outputs, of static sizes.

    Raises:
        RuntimeError: if it fails.
    """
    built = lowered.build(path, target=target, kind="executable")
    entry = built.library.entries[0]
    outputs = outputs_of(entry)
    files = [path.with_name(f"{path.name}_{number}.raw") for number in range(len(inputs) + len(outputs))]
    for file, leaf, value in zip(files, inputs, inputs_of(entry), strict=False):
        tensor = leaf.contiguous().to(native_dtype(value))
        file.write_bytes(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
    command = [*RUNNERS[target], built.files[0], entry.c_name, "1", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {done.stderr[:200]}")
    return [
        torch.frombuffer(bytearray(file.read_bytes()), dtype=native_dtype(value)).reshape(
            [*map(int, value.shape or ())]
        )
        for file, value in zip(files[len(inputs) :], outputs, strict=True)
    ]
