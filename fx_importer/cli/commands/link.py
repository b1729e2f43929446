"""``fx-importer link``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.mlir.module_io import MODULES, save_module
from fx_importer.mlir.output_files import check_writable
from fx_importer.weights import link


def link_module(
    module: Path,
    output: Path,
    weights: Sequence[Path] | None,
    manifest: Path | None,
    trust: bool = False,
    json: Path | None = None,
) -> None:
    """Write ``module`` with its weights linked in to ``output``, and a summary to ``json``; `link` describes ``trust``.

    Raises:
        UsageError: if the output cannot be written (checked first), or the weights do not match.
    """
    check_writable(output, MODULES)
    with json_output(json) as write:
        save_module(link(module, weights, manifest, trust=trust), output)
        size = output.stat().st_size
        echo(f"{output}: {size:,} bytes")
        write(document({"output": output, "bytes": size}))
