"""`compile_kernels`: machine code of the Triton kernels of a lowered program."""

from __future__ import annotations

from fx_importer.engines.triton.triton_gpu import CompiledKernel, kernels_of
from fx_importer.results.lowered import Lowered


def compile_kernels(lowered: Lowered, target: str) -> tuple[CompiledKernel, ...]:
    """Compile the Triton kernels that ``lowered`` calls, each variant of an autotuned one. No device is needed.

    Args:
        lowered: a program of any output type.
        target: ``"cuda:sm_90"`` or ``"rocm:gfx942"``, with any architecture that triton knows.

    Raises:
        UsageError: for another target, or a kernel that triton does not compile for it.
        NotInstalledError: without triton.
    """
    return kernels_of(lowered.module, target)
