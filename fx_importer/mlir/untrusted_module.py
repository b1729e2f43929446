"""Reading of modules from files that others may have written."""

from __future__ import annotations

from pathlib import Path

from fx_importer.errors import CrashedError, UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_io import read_module
from fx_importer.mlir.untrusted_module_child import parse
from fx_importer.process.one_shot import run_isolated


def read_untrusted_module(path: Path, *, unregistered: bool = False) -> ir.Module:
    """Read a module into a new context, after another process has read it.

    MLIR's parser ends the process, or goes on forever, for some damaged files. The first reading takes 0.3 s, and maps
    the file as the second one does.

    Raises:
        UsageError: if the file does not exist, or MLIR cannot parse it.
    """
    if path.is_file():
        try:
            run_isolated("MLIR's parser", parse, path, "unregistered" if unregistered else "")
        except CrashedError as error:
            lines = error.output.splitlines()
            reason = f"its parser was ended by {error.signal}" if error.signal else lines[-1] if lines else "it failed"
            raise UsageError(f"'{path}' is no module that MLIR reads: {reason}") from None
    return read_module(path, unregistered=unregistered)
