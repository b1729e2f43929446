"""The child process in which a module from a file is parsed first. It imports no torch."""

import resource
import sys
from pathlib import Path

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.resources import byte_size, has_data, resource_bytes, resources_in

SECONDS, BYTES = 20, 8 << 30
"""Limits of a file without weights: CPU time, and address space."""
_SECONDS_PER_GIB, _MEMORY_PER_BYTE = 60, 6


def parse(path: str, unregistered: str) -> None:
    """Parse the module in the file ``path``, within limits, and check the sizes of its resources.

    What MLIR reports as an error is left for the caller to meet. Anything else ends this process: a signal, a limit,
    or an exit code of 1 with a sentence.
    """
    size = Path(path).stat().st_size
    for limit, most in (
        (resource.RLIMIT_CPU, SECONDS + _SECONDS_PER_GIB * size // 2**30),
        (resource.RLIMIT_AS, BYTES + _MEMORY_PER_BYTE * size),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    context = new_context()
    load_dialects(context)
    context.allow_unregistered_dialects = bool(unregistered)
    try:
        module = ir.Module.parseFile(path, context)
    except (ir.MLIRError, RuntimeError):  # RuntimeError: a message that is no text
        return
    for value in dict.fromkeys(value for *_, value in resources_in(module.operation)):
        if resource_bytes(value, byte_size(value)) is None and has_data(value):
            sys.exit(f"a resource of type {value.type} has data of another size")
