"""Reading of modules from files that others may have written."""

from __future__ import annotations

from pathlib import Path

from fx_importer.errors import CrashedError, UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_io import check_module_file, read_module
from fx_importer.mlir.untrusted_module_child import rewrite
from fx_importer.process.one_shot import run_isolated
from fx_importer.process.scratch import Scratch


def read_untrusted_module(path: Path, *, unregistered: bool = False) -> ir.Module:
    """Read a module into a new context. Another process parses the file, and this one what that process writes.

    MLIR's parser of bytecode corrupts memory, or goes on forever, for some damaged files. The process takes 0.5 s of
    CPU time, and 2 s more for each GB of weights that are in the module.

    Raises:
        UsageError: if the file does not exist, or MLIR cannot parse it.
    """
    check_module_file(path)
    with Scratch() as folder:
        made = folder / "module.mlirbc"
        try:
            run_isolated("MLIR's parser", rewrite, path, made, "unregistered" if unregistered else "")
        except CrashedError as error:
            raise UsageError(f"'{path}' is not a module that MLIR reads: {_reason(error)}") from None
        return read_module(made, unregistered=unregistered)


def _reason(error: CrashedError) -> str:
    if error.signal == "SIGXCPU":
        return "its parser did not end within its limit of time"
    if error.signal:
        return f"its parser was ended by {error.signal}"
    output = error.output.strip()
    return output.splitlines()[-1] if output.startswith("Traceback") else output or "its parser failed"
