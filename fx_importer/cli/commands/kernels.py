"""``fx-importer kernels``."""

from __future__ import annotations

from pathlib import Path

from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.engines.triton.triton_gpu import kernels_of, save_kernels
from fx_importer.errors import UsageError
from fx_importer.mlir.output_files import check_directory
from fx_importer.mlir.untrusted_module import read_untrusted_module


def compile_kernels_of(module: Path, target: str, output: Path, json: Path | None = None) -> None:
    """Compile the Triton kernels that the module in a file calls, and write them to the directory ``output``.

    Prints their resources, and writes them to ``json``.

    Raises:
        UsageError: if the module cannot be read or calls none, or one does not compile.
        NotInstalledError: without triton.
    """
    check_directory(output)
    with json_output(json) as write:
        kernels = kernels_of(read_untrusted_module(module, unregistered=True), target)
        if not kernels:
            raise UsageError(f"'{module}' calls no Triton kernels")
        save_kernels(kernels, target, output)
        rows = [
            {"function": kernel.function, "variant": kernel.variant, "shared": kernel.shared, "warps": kernel.num_warps}
            for kernel in kernels
        ]
        for row in rows:
            size = f"{row['shared']} bytes of shared memory, {row['warps']} warps"
            echo(f"{row['function']}, variant {row['variant']}: {size}")
        write(document({"target": target, "kernels": rows}))
