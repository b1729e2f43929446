"""Runs a pipeline on a file, for reports: ``python -m fx_importer.pipelines.replay FILE PIPELINE``.

What ``torch-mlir-opt`` does, with every pass and dialect of the wheel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fx_importer.diagnostics.mlir_diagnostics import diagnostics_of
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines.runner import run_text


def main(arguments: Sequence[str]) -> int:
    """Run the pipeline, print what MLIR says to standard error, and return the exit code."""
    path, pipeline = arguments
    context = new_context()
    context.allow_unregistered_dialects = True  # what was run before may have been allowed to
    load_dialects(context)
    try:
        run_text(pipeline, ir.Module.parseFile(path, context))
    except ir.MLIRError as error:
        print(*diagnostics_of(error), sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
