"""Machine code of Triton kernels for GPUs, by triton's own compiler, which needs no device."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_importer.engines.triton.triton_gpu_child import compile_in_child
from fx_importer.errors import CrashedError, NotInstalledError, UsageError
from fx_importer.manifest import STUB_ATTRIBUTE, TRITON_IR_ATTRIBUTE, OperatorArgument, OperatorStub
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.output_files import save_files
from fx_importer.options import Limits
from fx_importer.process.one_shot import run_isolated
from fx_importer.process.optional_packages import is_installed
from fx_importer.process.scratch import Scratch

_SUFFIXES = {"cuda": ("ptx", "cubin"), "hip": ("amdgcn", "hsaco")}
_LIMITS = Limits(seconds=300)


@dataclass(frozen=True)
class CompiledKernel:
    """A variant of a kernel, compiled for a GPU, and its launch parameters."""

    function: str
    """The function that the module declares."""
    variant: int
    """The index in `TritonKernel.variants`."""
    name: str
    """The symbol in the binary."""
    grid: OperatorArgument
    """Three sizes, each a number or an argument of the function."""
    parameters: Mapping[str, OperatorArgument]
    """The value of each parameter: in the order of the kernel, without those that are constants in the code.

    Two pointers follow them: to scratch memory, null if `scratch` is 0, and a null one, for Triton's profiler.
    """
    shared: int
    """Bytes of shared memory."""
    num_warps: int
    num_ctas: int
    """Blocks of a cluster: with more than one, a launch has to say so."""
    scratch: int
    """Bytes of scratch memory for each block, in one piece for all blocks of the grid."""
    assembly: str = dataclasses.field(repr=False)
    """PTX for NVIDIA, the assembly of LLVM for AMD."""
    binary: bytes = dataclasses.field(repr=False)
    """A cubin for NVIDIA, a code object for AMD."""


def save_kernels(kernels: tuple[CompiledKernel, ...], target: str, directory: Path) -> None:
    """Write assembly and binary of ``kernels`` to ``directory``, and how to launch them to ``kernels.json``.

    Raises:
        UsageError: if a file cannot be written; no new files are left then.
    """
    suffixes, records, files = _SUFFIXES[_parsed(target)[0]], [], dict[Path, bytes]()
    for kernel in kernels:
        names = [f"{kernel.function}.{kernel.variant}.{suffix}" for suffix in suffixes]
        files |= {directory / names[0]: kernel.assembly.encode(), directory / names[1]: kernel.binary}
        record = {key: value for key, value in dataclasses.asdict(kernel).items() if key not in ("assembly", "binary")}
        records.append(record | {"files": names})
    text = json.dumps({"target": target, "kernels": records}, indent=2)
    files[directory / "kernels.json"] = f"{text}\n".encode()
    save_files(files)


def kernels_of(module: ir.Module, target: str) -> tuple[CompiledKernel, ...]:
    """Compile the Triton kernels that ``module`` calls, each variant in a process of its own.

    Args:
        module: a module of any output type.
        target: ``"cuda:sm_90"`` or ``"rocm:gfx942"``.

    Raises:
        UsageError: for another target, or a kernel that triton does not compile for it.
        NotInstalledError: without triton.
    """
    backend, arch = _parsed(target)
    if not is_installed("triton"):
        raise NotInstalledError("compiling Triton kernels", "triton", "triton")
    return tuple(
        _compiled(name, number, stub, text, (target, backend, arch))
        for name, function in functions_of(module).items()
        if TRITON_IR_ATTRIBUTE in function.attributes
        for stub in [OperatorStub.from_json(ir.StringAttr(function.attributes[STUB_ATTRIBUTE]).value)]
        for number, text in enumerate(ir.ArrayAttr(function.attributes[TRITON_IR_ATTRIBUTE]))
    )


def _compiled(
    function: str, number: int, stub: OperatorStub, text: ir.Attribute, where: tuple[str, str, str]
) -> CompiledKernel:
    kernel, (target, backend, arch) = stub.kernel, where
    if kernel is None or number >= len(kernel.variants):
        raise UsageError(f"the declaration of '{function}' has the IR of a kernel, and not how it is launched")
    variant, grids = kernel.variants[number], len(kernel.variants)
    with Scratch() as folder:
        source = folder / "source.ttir"
        source.write_text(ir.StringAttr(text).value)
        chosen = backend, arch, json.dumps(variant.options)
        try:
            run_isolated("triton", compile_in_child, source, folder, *chosen, limits=_LIMITS)
        except CrashedError as error:
            reason = (error.output.strip().splitlines() or [str(error)])[-1]
            raise UsageError(f"triton does not compile the kernel '{kernel.name}' for {target}: {reason}") from None
        settings: dict[str, Any] = json.loads((folder / "kernel.json").read_text())
        parameters = dict(zip(kernel.parameters, stub.arguments[grids:], strict=True))
        return CompiledKernel(
            function,
            number,
            grid=stub.arguments[number],
            parameters=parameters,
            assembly=(folder / "kernel.asm").read_text(),
            binary=(folder / "kernel.bin").read_bytes(),
            **settings,
        )


def _parsed(target: str) -> tuple[str, str]:
    """Return triton's names of the backend and the architecture. Raises `UsageError` for another target."""
    if match_ := re.fullmatch(r"cuda:sm_(\d+)a?", target):
        return "cuda", match_[1]
    if match_ := re.fullmatch(r"rocm:(gfx[0-9a-f]+)", target):
        return "hip", match_[1]
    raise UsageError(f"no target '{target}' of Triton kernels: accepted are forms such as cuda:sm_90 and rocm:gfx942")
