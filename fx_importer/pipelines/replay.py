"""Runs a pipeline on a file, for reports: ``python -m fx_importer.pipelines.replay FILE PIPELINE``.

What ``torch-mlir-opt`` does, with every pass and dialect of the wheel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fx_importer.bindings import ir, new_context
from fx_importer.diagnostics import from_mlir_error
from fx_importer.pipelines.runner import run_text


def main(arguments: Sequence[str]) -> int:
    """Run the pipeline, print what MLIR says to standard error, and return the exit code."""
    path, pipeline = arguments
    context = new_context()
    _load_dialects(context)
    try:
        run_text(pipeline, ir.Module.parseFile(path, context))
    except ir.MLIRError as error:
        print(*from_mlir_error(error), sep="\n", file=sys.stderr)
        return 1
    return 0


def _load_dialects(context: ir.Context) -> None:
    # torch_c, tm_tensor, stablehlo and chlo come into a context by a pass that depends on them, and in no other way.
    run_text(
        "builtin.module(func.func(convert-torch-to-tmtensor,convert-torch-to-stablehlo))",
        ir.Module.parse("module {}", context),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
