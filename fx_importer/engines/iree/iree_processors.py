"""Processors that IREE compiles for on any machine, by name."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fx_importer.errors import UsageError


@dataclass(frozen=True)
class IreeProcessor:
    """A processor as LLVM names it."""

    triple: str
    cpu: str
    features: str = ""
    abi: tuple[str, ...] = ()
    """Flags for the calling convention, where it differs from the default of the triple."""
    microcontroller: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """The arguments of ``iree-compile``."""
        features = (f"--iree-llvmcpu-target-cpu-features={self.features}",) if self.features else ()
        return (
            "--iree-hal-target-backends=llvm-cpu",
            f"--iree-llvmcpu-target-triple={self.triple}",
            f"--iree-llvmcpu-target-cpu={self.cpu}",
            *(*features, *self.abi),
            *(_LESS_MEMORY if self.microcontroller else ()),
        )


_LESS_MEMORY = ("--iree-stream-partitioning-favor=min-peak-memory", "--iree-llvmcpu-debug-symbols=false")
_HARD_FLOAT = ("--iree-llvmcpu-target-float-abi=hard",)
_RISCV64 = "riscv64-unknown-linux-gnu"
_LP64D = ("--iree-llvmcpu-target-abi=lp64d",)

PROCESSORS: Mapping[str, IreeProcessor] = {
    **{
        name: IreeProcessor("x86_64-unknown-linux-gnu", name)
        for name in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
    },
    "aarch64": IreeProcessor("aarch64-unknown-linux-gnu", "generic"),
    "riscv64": IreeProcessor(_RISCV64, "generic-rv64", "+m,+a,+f,+d,+c", _LP64D),
    "riscv64-v": IreeProcessor(_RISCV64, "generic-rv64", "+m,+a,+f,+d,+c,+v,+zvl128b", _LP64D),
    "riscv32": IreeProcessor(
        "riscv32-unknown-elf", "generic-rv32", "+m,+a,+c", ("--iree-llvmcpu-target-abi=ilp32",), microcontroller=True
    ),
    "cortex-m4": IreeProcessor(
        "thumbv7em-none-eabi", "cortex-m4", "+dsp,+hwdiv,+vfp4d16sp", _HARD_FLOAT, microcontroller=True
    ),
    "cortex-m7": IreeProcessor(
        "thumbv7em-none-eabi", "cortex-m7", "+dsp,+hwdiv,+fp-armv8d16", _HARD_FLOAT, microcontroller=True
    ),
    "cortex-m55": IreeProcessor(
        "thumbv8.1m.main-none-eabi",
        "cortex-m55",
        "+dsp,+hwdiv,+mve.fp,+fp-armv8d16,+fullfp16",
        _HARD_FLOAT,
        microcontroller=True,
    ),
}
"""Baselines: each runs on every processor of its name, with or without other instructions."""

_NEEDS = {"x86-64-v3": ("AVX2", "AVX512"), "x86-64-v4": ("AVX512",)}
"""What PyTorch finds on a CPU that has the instructions of a level."""


def check_processor(name: str) -> None:
    """Raise `UsageError` unless the processor of this machine runs code for the one ``name``."""
    name = name.removeprefix("cpu:")
    architecture, machine = PROCESSORS[name].triple.partition("-")[0], platform.machine().replace("arm64", "aarch64")
    found = torch.backends.cpu.get_cpu_capability()
    if architecture != machine or (name in _NEEDS and found not in _NEEDS[name]):
        raise UsageError(
            f"this machine has a processor of {machine} ({found}), which does not run code for '{name}'. Compiling for "
            "it is possible here"
        )
