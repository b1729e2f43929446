"""Arm's Vela: the compiler of Ethos-U processors, with its own estimate of cycles and memory."""

from __future__ import annotations

import csv
import difflib
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from fx_importer.engines.tosa_reference.tosa_flatbuffer import write_flatbuffer
from fx_importer.engines.vela.c_arrays import c_arrays
from fx_importer.errors import NotInstalledError, UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.output_files import save_bytes
from fx_importer.process.one_shot import output_of
from fx_importer.process.optional_packages import is_installed
from fx_importer.process.scratch import Scratch

TARGET = "profiles=pro_int extensions=int16 specification_version=1.0 level=8k"
"""What Vela reads: int8, and int16 with sums of 48 bits."""
ARRAYS = ".h"
"""The suffix of arrays of C."""
_MINUTES = 30
_BEFORE_REASON = "Compilation failed: "
"""Before the reason, in the exception that Vela ends with."""
_ERROR = "RuntimeError: "
"""Before the exception."""
_NOT_ON_NPU = r"Non-passthrough operation \((\w+)\) could not run on NPU"
"""The exception for an operator that an accelerator lacks."""


@dataclass(frozen=True)
class TensorScale:
    """How an input or a result of the program is quantized: ``scale * (integer - zero_point)``."""

    scale: float | None
    """None for a tensor of integers without a scale."""
    zero_point: int | None


Scales = Sequence[tuple[float, int] | None]


@dataclass(frozen=True)
class Estimate:
    """Vela's estimate of a program on an accelerator."""

    accelerator: str
    system: str
    memory_mode: str
    clock: float
    """Hertz."""
    cycles: Mapping[str, int]
    """In total, of the processor and of each memory."""
    macs: int
    memory: Mapping[str, float]
    """KiB used, by memory."""
    original_weights: int
    """Bytes of weights before Vela compresses them."""
    encoded_weights: int
    """Bytes of weights after it has."""
    npu_operators: int
    cpu_operators: int
    inputs: Sequence[TensorScale] = ()
    """Scales of the inputs, in the order of the program."""
    outputs: Sequence[TensorScale] = ()
    on_processor: Sequence[str] = ()
    """What the NPU does not run and why, where a program is divided."""

    @property
    def milliseconds(self) -> float:
        """The time of a call."""
        return self.cycles["total"] / self.clock * 1e3

    def __str__(self) -> str:
        used = ", ".join(f"{name} {size:,.1f} KiB" for name, size in self.memory.items() if size)
        parts = ", ".join(f"{name} {count:,}" for name, count in self.cycles.items() if count and name != "total")
        rows = {
            "cycles": f"{self.cycles['total']:,} ({self.milliseconds:.3f} ms at {self.clock / 1e6:,.0f} MHz): {parts}",
            "multiplications": f"{self.macs:,}",
            "memory": used,
            "weights": f"{self.original_weights:,} bytes, {self.encoded_weights:,} encoded",
            "operators": f"{self.npu_operators} on the NPU, {self.cpu_operators} on the CPU",
        }
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            for i, tensor in enumerate(tensors):
                if tensor.scale is not None:
                    rows[f"{kind} {i}"] = f"scale {tensor.scale:.9g}, zero point {tensor.zero_point}"
        for i, text in enumerate(self.on_processor):
            rows["on the CPU" + " " * i] = text
        head = f"{self.accelerator}, system {self.system}, memory mode {self.memory_mode}"
        return "\n".join([head, *(f"  {name:<16} {text}" for name, text in rows.items())])


def check_accelerator(name: str) -> None:
    """Raise `UsageError` unless Vela knows the accelerator, and `NotInstalledError` without Vela."""
    if not is_installed("ethosu"):
        raise NotInstalledError("vela", "ethos-u-vela", "vela")
    known = importlib.import_module("ethosu.vela.architecture_features").Accelerator.member_list()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"Vela knows no accelerator '{name}': it compiles for {', '.join(known)}{hint}")


def has_resize(accelerator: str) -> bool:
    """Return whether Vela compiles ``tosa.resize`` for an accelerator."""
    return accelerator.startswith("ethos-u85")


class RefusedError(UsageError):
    """Vela refuses a program."""

    def __init__(self, accelerator: str, output: str) -> None:
        self.reasons = reasons_of(output)
        """Why, by names of operators as Vela spells them; empty where it names none."""
        super().__init__(f"Vela does not compile it for {accelerator}: {refused(output)}")


def compile_with_vela(
    module: ir.Module,
    accelerator: str,
    output: Path | None,
    options: tuple[str, ...],
    scales: tuple[Scales, Scales] = ((), ()),
) -> Estimate:
    """Compile a module of TOSA 1.0 in integers; write what Vela makes to ``output`` if it is given.

    That is a TFLite file, or arrays of C if the suffix is ``.h``. ``options`` are more arguments of Vela's command, and
    ``scales`` scale and zero point of inputs and of results.

    Raises:
        NotInstalledError: without Vela or ``tosa-tools``.
        UsageError: for an unknown accelerator, and a module that is not of `TARGET`.
        RefusedError: for operators that Vela rejects.
    """
    as_arrays = output is not None and output.suffix == ARRAYS
    estimate, content = run_vela(module, accelerator, (*options, *(("--output-format", "raw") if as_arrays else ())))
    if output is not None and as_arrays:
        content = c_arrays(content, output.stem, accelerator, vela_version(), scales).encode()
    if output is not None:
        save_bytes(content, output)
    return replace(estimate, inputs=tensor_scales(scales[0]), outputs=tensor_scales(scales[1]))


def run_vela(module: ir.Module, accelerator: str, options: Sequence[str]) -> tuple[Estimate, bytes]:
    """Return Vela's estimate, and the file that it writes; raises as `compile_with_vela` does."""
    check_accelerator(accelerator)
    if not is_installed("tosa_reference_model"):
        raise NotInstalledError("vela", "tosa-tools", "tosa")
    with Scratch() as folder:
        write_flatbuffer(module, folder / "model.tosa", TARGET)
        arguments = ["--accelerator-config", accelerator, "--output-dir", str(folder), *options]
        ran = output_of([sys.executable, "-m", "ethosu.vela", str(folder / "model.tosa"), *arguments], _MINUTES * 60)
        (summary, *_) = [*folder.glob("model_summary_*.csv"), None]
        if ran.returncode or summary is None:
            raise RefusedError(accelerator, ran.stderr + ran.stdout)
        with summary.open(newline="") as file:
            estimate = _estimate(accelerator, next(iter(csv.DictReader(file))), ran.stdout)
        (written,) = (path for path in folder.glob("model_vela.*") if path.suffix in (".npz", ".tflite"))
        return estimate, written.read_bytes()


def vela_version() -> str:
    """Return the version of Vela."""
    return version("ethos-u-vela")


def tensor_scales(scales: Scales) -> list[TensorScale]:
    """Return ``scales`` as records; a tensor without a scale has one too."""
    return [TensorScale(*(scale or (None, None))) for scale in scales]


def reasons_of(output: str) -> dict[str, list[str]]:
    """Return why Vela rejects a program, by operator, from its output; empty where that names none."""
    _, reason, listed = output.rpartition(_BEFORE_REASON)
    if not reason:
        return {match[1]: [match[0]] for match in re.finditer(_NOT_ON_NPU, output)}
    reasons: dict[str, list[str]] = {}
    for line in listed.splitlines():
        if line.endswith(":") and not line.startswith((" ", "Validation error")):
            reasons.setdefault(line[:-1], [])
        elif line.startswith(" - ") and reasons:
            reasons[list(reasons)[-1]].append(line.removeprefix(" - "))
    return reasons


def refused(output: str) -> str:
    """Return the operators that Vela rejects, as ``operator: reason``, or the end of its output."""
    if (reasons := reasons_of(output)) and _BEFORE_REASON in output:
        return "".join(f"\n  {name}: {', '.join(dict.fromkeys(texts))}" for name, texts in reasons.items())
    errors = [line.removeprefix(_ERROR) for line in output.splitlines() if line.startswith(_ERROR)]
    if errors and _BEFORE_REASON not in output:
        return f"\n  {errors[-1]}"
    return "\n  ".join(["", *output.splitlines()[-3:]])


def _estimate(accelerator: str, row: Mapping[str, str], printed: str) -> Estimate:
    memories = {"SRAM": "sram", "DRAM": "dram", "on-chip flash": "on_chip_flash", "off-chip flash": "off_chip_flash"}
    cycles = {"total": row["cycles_total"], "NPU": row["cycles_npu"]}
    cycles |= {name: row[f"cycles_{key}_access"] for name, key in memories.items()}
    return Estimate(
        accelerator,
        row["system_config"],
        row["memory_mode"],
        float(row["core_clock"]),
        {name: int(float(count)) for name, count in cycles.items()},
        int(float(row["nn_macs"])),
        {name: float(row[f"{key}_memory_used"]) for name, key in memories.items()},
        int(float(row["total_original_weights"])),
        int(float(row["total_npu_encoded_weights"])),
        _operators(printed, "NPU"),
        _operators(printed, "CPU"),
    )


def _operators(printed: str, kind: str) -> int:
    (line, *_) = [line for line in printed.splitlines() if line.startswith(f"{kind} operators = ")] or ["= 0"]
    return int(line.partition("= ")[2].split()[0])
