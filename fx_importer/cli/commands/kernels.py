"""``fx-importer kernels``."""

from __future__ import annotations

from pathlib import Path

from fx_importer.cli.terminal import echo
from fx_importer.engines.triton.triton_gpu import kernels_of, save_kernels
from fx_importer.errors import UsageError
from fx_importer.mlir.untrusted_module import read_untrusted_module


def compile_kernels_of(module: Path, target: str, output: Path) -> None:
    """Compile the Triton kernels that the module in a file calls, and write them to the directory ``output``.

    Raises:
        UsageError: if the module cannot be read or calls none, or one does not compile.
        NotInstalledError: without triton.
    """
    kernels = kernels_of(read_untrusted_module(module, unregistered=True), target)
    if not kernels:
        raise UsageError(f"'{module}' calls no Triton kernels")
    save_kernels(kernels, target, output)
    for kernel in kernels:
        size = f"{kernel.shared} bytes of shared memory, {kernel.num_warps} warps"
        echo(f"{kernel.function}, variant {kernel.variant}: {size}")
