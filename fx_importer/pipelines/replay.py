"""Command line that runs a pipeline on a file: ``python -m fx_importer.pipelines.replay FILE PIPELINE``.

Like ``torch-mlir-opt``, but with every pass and dialect of the wheel. Reports use it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fx_importer.diagnostics.mlir_diagnostics import diagnostics_of
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines.runner import run_text


def main(arguments: Sequence[str]) -> int:
    """Run the pipeline, print MLIR's diagnostics to standard error, and return the exit code."""
    path, pipeline = arguments
    context = new_context()
    context.allow_unregistered_dialects = True  # the original run may have allowed them
    load_dialects(context)
    try:
        run_text(pipeline, ir.Module.parseFile(path, context))
    except ir.MLIRError as error:
        print(*diagnostics_of(error), sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
