"""The child process that parses a module from a file, and writes it again. It imports no torch."""

import resource
import sys
from pathlib import Path

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.resources import byte_size, has_data, resource_bytes, resources_in

SECONDS, BYTES = 10, 8 << 30
"""Limits of a file without weights: CPU time, and address space."""
_SECONDS_PER_GIB, _MEMORY_PER_BYTE = 60, 6


def rewrite(path: str, made: str, unregistered: str) -> None:
    """Parse the module in the file ``path``, within limits, and write it to the file ``made`` as bytecode.

    If that fails, this process ends with a sentence and the exit code 1; or by a signal or a limit.
    """
    size = Path(path).stat().st_size
    for limit, most in (
        (resource.RLIMIT_CPU, SECONDS + _SECONDS_PER_GIB * size // 2**30),
        (resource.RLIMIT_AS, BYTES + _MEMORY_PER_BYTE * size),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most and most + 1))  # at the first of the two, SIGXCPU tells the reason
    context = new_context()
    load_dialects(context)
    context.allow_unregistered_dialects = bool(unregistered)
    try:
        module = ir.Module.parseFile(path, context)
    except (ir.MLIRError, RuntimeError) as error:  # RuntimeError: a message that cannot be decoded
        sys.exit(str(error))
    for value in dict.fromkeys(value for *_, value in resources_in(module.operation)):
        if resource_bytes(value, byte_size(value)) is None and has_data(value):
            sys.exit(f"a resource of type {value.type} has data of another size")
    with Path(made).open("wb") as file:  # as `write_bytecode`, which this process does not import
        module.operation.write_bytecode(file)
