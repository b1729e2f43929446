"""Processors that native code is built for: a triple, a CPU and what passes ask of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fx_importer.errors import UsageError
from fx_importer.rewrites.llvm.processor import Processor

_GLIBC = "2.17"
"""The C library of 2012, which every distribution of today has."""


@dataclass(frozen=True)
class NativeTarget:
    """A processor, and the system on it."""

    name: str
    triple: str
    """As Zig spells it: architecture, system, C library."""
    cpu: str
    """As Zig spells it: a name of LLVM's with underscores, and features after ``+`` and ``-``."""
    processor: Processor
    about: str

    @property
    def is_linux_here(self) -> bool:
        """Whether it is Linux on the architecture of this machine, which is Linux: libraries of this machine fit."""
        machine = platform.machine().lower()
        architecture = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
        return platform.system() == "Linux" and (self.system, self.architecture) == ("linux", architecture)

    @property
    def architecture(self) -> str:
        return self.triple.partition("-")[0]

    @property
    def system(self) -> str:
        return self.triple.split("-")[1].partition(".")[0]

    @property
    def is_bare(self) -> bool:
        """Whether there is no operating system, and no C library that we bring."""
        return self.system in ("freestanding", "none")


_X86 = f"x86_64-linux-gnu.{_GLIBC}"
_ARM = f"aarch64-linux-gnu.{_GLIBC}"
_RISCV = "riscv64-linux-gnu.2.27"
_THUMB = "thumb-freestanding-eabihf"
_PRESETS = (
    NativeTarget("x86-64-v2", _X86, "x86_64_v2", Processor(4, 16, fma=False), "every x86-64 since 2009 (SSE4.2)"),
    NativeTarget("x86-64-v3", _X86, "x86_64_v3", Processor(8, 16), "since 2013 (AVX2, FMA)"),
    NativeTarget("x86-64-v4", _X86, "x86_64_v4", Processor(16, 32), "servers since 2017 (AVX-512)"),
    NativeTarget("aarch64", _ARM, "generic", Processor(4, 32), "every 64-bit Arm (Neon)"),
    NativeTarget("riscv64", _RISCV, "baseline_rv64", Processor(), "RV64GC, without vectors"),
    NativeTarget("riscv64-v", _RISCV, "baseline_rv64+v", Processor(), "RV64GC with vectors (V)"),
    NativeTarget("cortex-m4", _THUMB, "cortex_m4", Processor(index_bits=32), "bare metal, float32 in hardware"),
    NativeTarget(
        "cortex-m7", _THUMB, "cortex_m7", Processor(index_bits=32), "bare metal, float32 and float64 in hardware"
    ),
    NativeTarget("cortex-m55", _THUMB, "cortex_m55", Processor(index_bits=32), "bare metal, Helium (MVE)"),
    NativeTarget("wasm32", "wasm32-wasi-musl", "generic", Processor(fma=False, index_bits=32), "WebAssembly"),
    NativeTarget(
        "wasm32-simd", "wasm32-wasi-musl", "generic+simd128", Processor(fma=False, index_bits=32), "with SIMD128"
    ),
)
PRESETS: Mapping[str, NativeTarget] = {target.name: target for target in _PRESETS}
"""Targets by name."""
HOST = "host"
"""The name of the target that uses all instructions of this machine: its code runs on such processors only."""
_BASELINES = {
    "x86_64": "x86-64-v2",
    "amd64": "x86-64-v2",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "riscv64": "riscv64",
}
_TRIPLE = re.compile(r"[a-z0-9_]+-[a-z]+(\.[\d.]+)?(-[a-z0-9]+(\.[\d.]+)?)?", re.ASCII)
_BIG_ENDIAN = re.compile(r"s390x|powerpc|powerpc64|mips|mips64|sparc|sparc64|m68k|lanai|bpfeb|\w+eb|\w+_be", re.ASCII)
_CPU = re.compile(r"[a-z0-9_]+([+-][a-z0-9_]+)*", re.ASCII)


def target_named(name: str | None) -> NativeTarget:
    """Return the target ``name``: a preset, ``"host"``, or ``TRIPLE:CPU+FEATURE-FEATURE`` in Zig's words.

    By default, the baseline of this machine's architecture.

    Raises:
        UsageError: for another name.
    """
    if name is None:
        name = _BASELINES.get(platform.machine().lower(), "x86-64-v2")
    if name in PRESETS:
        return PRESETS[name]
    if name == HOST:
        return _host()
    triple, _, cpu = name.partition(":")
    if not _TRIPLE.fullmatch(triple) or (cpu and not _CPU.fullmatch(cpu)):
        raise UsageError(
            f"no target '{name}': accepted are {', '.join((*PRESETS, HOST))}, and a triple with a CPU such as "
            "'aarch64-linux-musl:cortex_a72'"
        )
    if _BIG_ENDIAN.fullmatch(triple.partition("-")[0]):
        raise UsageError(f"'{triple}' is big-endian, and weights are written little-endian: build kind='c', C source")
    if triple.endswith(("x32", "ilp32", "n32")):
        raise UsageError(
            f"'{triple}' has pointers of 32 bits in registers of 64: take the ABI with pointers of 64 bits"
        )
    base = next((preset for preset in _PRESETS if preset.architecture == triple.partition("-")[0]), None)
    processor = Processor(index_bits=64 if "64" in triple.partition("-")[0] else 32, fma=False)
    if base is not None:
        processor = replace(base.processor)
    return NativeTarget(name, triple, cpu or (base.cpu if base else "baseline"), processor, "")


def _host() -> NativeTarget:
    """Return the target with the instructions of this machine."""
    baseline = target_named(None)
    best = baseline
    if baseline.architecture == "x86_64":
        import torch

        capability = torch.backends.cpu.get_cpu_capability()
        best = PRESETS[{"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}.get(capability, "x86-64-v2")]
    return replace(best, name=HOST, cpu="native", about="the processor of this machine, and those like it")
