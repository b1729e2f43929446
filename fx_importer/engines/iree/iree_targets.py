"""Devices and processors that IREE compiles for, by name."""

from __future__ import annotations

import platform
import re
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
    level = torch.backends.cpu.get_cpu_capability()
    if architecture != machine or (name in _NEEDS and level not in _NEEDS[name]):
        raise UsageError(
            f"this machine has a processor of {machine} ({level}), which does not run code for '{name}'. Compiling for "
            "it is possible here"
        )


HOST = "cpu"
"""The processor of this machine, with all of its instructions."""


@dataclass(frozen=True)
class IreeTarget:
    """A device that IREE compiles for, and the driver that runs it."""

    name: str
    driver: str
    flags: tuple[str, ...]
    narrow_integers: bool = False
    """Whether i64 is computed as i32, and passed so: devices of Vulkan and Metal need not have 64-bit integers."""
    shared: str | None = None
    """PyTorch's type of the device whose tensors are passed in place. None on others."""
    microcontroller: bool = False
    """Whether memory is scarce and floats are slow: products of integers stay integers. It has no operating system."""

    @property
    def is_cpu(self) -> bool:
        """Whether the code is for a CPU."""
        return self.driver == "local-task"


_FORMS: Mapping[str, tuple[str, str, str | None]] = {
    "cuda": (r"sm_\d+a?", "cuda", "--iree-cuda-target"),
    "rocm": (r"gfx[0-9a-f]+", "hip", "--iree-rocm-target"),
    "vulkan": (r"[\w@+.-]+", "vulkan", "--iree-vulkan-target"),
    "metal": ("", "metal", None),
}
"""The form of the architecture, IREE's name of the device, and its flag for the architecture."""
_SHARED = {"cuda": "cuda", "hip": "cuda"}
"""`IreeTarget.shared` by driver."""
_NEWER_CUDA = re.compile(r"sm_(90|100|101|103|110|120|121)a?")
"""Architectures of NVIDIA that IREE 3.13 does not know: its newest is sm_89."""
_NEWER_AS = "sm_80"
"""What they are compiled as: the one with the largest shared memory. NVIDIA's driver compiles PTX for newer devices."""
_SPIRV = {"vp_": "v1.3", "adreno": "v1.6"}
"""IREE's SPIR-V version for architectures of Vulkan that it takes to have no 8-bit storage, by prefix."""
_NARROW_STORAGE = (
    "cap:Shader,cap:StorageBuffer8BitAccess,cap:Int8,cap:StorageBuffer16BitAccess,cap:Int16,cap:Float16,"
    "ext:SPV_KHR_8bit_storage,ext:SPV_KHR_16bit_storage"
)
"""What is asked of their devices: without it, IREE 3.13 reads a vector of bool, of 8-bit or 16-bit elements as one of
32-bit elements, which is wrong numbers without an error."""


def iree_target(name: str) -> IreeTarget:
    """Return the target ``name``: ``cpu``, a CPU in `PROCESSORS`, also as ``cpu:x86-64-v3``, or a GPU.

    GPUs are ``cuda:sm_90``, ``rocm:gfx942``, ``vulkan:rdna3`` and ``metal``.

    Raises:
        UsageError: for a name of another form.
    """
    if name == HOST:
        return IreeTarget(name, "local-task", ("--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"))
    device, _, architecture = name.partition(":")
    processor = architecture if device == HOST else name
    if processor in PROCESSORS:
        cpu = PROCESSORS[processor]
        return IreeTarget(name, "local-task", cpu.flags, microcontroller=cpu.microcontroller)
    if device == HOST:
        raise UsageError(
            f"no CPU '{processor}' for IREE: {', '.join(PROCESSORS)} are accepted; 'cpu' is that of this machine"
        )
    form, driver, flag = _FORMS.get(device, (None, "", None))
    if form is None or not re.fullmatch(form, architecture):
        raise UsageError(
            f"no target '{name}': accepted are {HOST}, cuda:sm_90, rocm:gfx942, vulkan:rdna3, metal and the processors "
            f"{', '.join(PROCESSORS)}; IREE's documentation lists the architectures of GPUs"
        )
    if device == "cuda" and _NEWER_CUDA.fullmatch(architecture):
        architecture = _NEWER_AS
    flags = [f"--iree-hal-target-device={driver}", *([f"{flag}={architecture}"] if flag else [])]
    for start, version in _SPIRV.items() if device == "vulkan" else ():
        if architecture.startswith(start):
            flags.append(f"--iree-vulkan-target-features=spirv:{version},{_NARROW_STORAGE}")
    narrow = device in ("vulkan", "metal")
    return IreeTarget(
        name, driver, (*flags, *(["--iree-input-demote-i64-to-i32"] if narrow else [])), narrow, _SHARED.get(driver)
    )
