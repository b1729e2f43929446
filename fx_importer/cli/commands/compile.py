"""``fx-importer compile``."""

from __future__ import annotations

from pathlib import Path

from fx_importer.api.load import manifest_of_file
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.engines.engine_table import ahead_of_time
from fx_importer.mlir.output_files import check_directory, check_writable
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.results.save import parameters_of


def compile_module(
    module: Path,
    target: str,
    output: Path,
    kernels: Path | None = None,
    kind: str | None = None,
    json: Path | None = None,
) -> None:
    """Compile the module in a file for ``target`` by IREE, and write it to ``output``, and its kernels to ``kernels``.

    ``kind`` is the one of `Lowered.compile`. Prints the size of the code, and writes it to ``json``.

    Raises:
        UsageError: if the output cannot be written (checked first) or the module not be read; for an unknown target.
        NotInstalledError: without IREE.
        StageFailed: if IREE cannot compile it.
    """
    compiler = ahead_of_time()
    chosen = kind or next(iter(compiler.suffixes))
    check_writable(output, (compiler.suffixes[chosen],) if chosen in compiler.suffixes else ())
    if kernels is not None:
        check_directory(kernels)
    with json_output(json) as write:
        read = read_untrusted_module(module, unregistered=True)
        manifest = manifest_of_file(module, read)
        compiled = compiler.compile(read, target, {} if manifest is None else parameters_of(manifest), chosen)
        compiled.save(output, kernels)
        figures = {
            "dispatches": compiled.dispatches,
            "matrix instructions": compiled.matrix_instructions,
            "vector loads": compiled.vector_loads,
        }
        counts = ", ".join(f"{count} {name}" for name, count in figures.items())
        echo(f"{output}: {target}, {len(compiled.code):,} bytes, {counts}")
        write(document({"output": output, "target": target, "bytes": len(compiled.code), **figures}))
