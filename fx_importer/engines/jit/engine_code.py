"""Code that MLIR's ExecutionEngine generates."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Mapping, Sequence
from typing import Protocol

from torch_mlir.execution_engine import ExecutionEngine

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.walk import operations

LARGEST_CODE = 256 << 20
"""Bytes that no object file has: weights are not in it."""


class Code(Protocol):
    """Compiled code, which lives as long as this object."""

    def __getitem__(self, name: str) -> int:
        """Return the address of the function ``name``."""
        ...


class EngineCode:
    """Code in the memory of an engine.

    Args:
        module: in the LLVM dialect.
        level: of LLVM's optimizations, 0 to 3.
        functions: that will be called.
        addresses: of the functions that the code calls, by symbol, besides symbols of libraries in this process.
        dumps: whether `object_file` will be called: the engine then holds a second copy of the code.

    Raises:
        RuntimeError: if the code cannot be generated or linked.
    """

    def __init__(
        self, module: ir.Module, level: int, functions: Sequence[str], addresses: Mapping[str, int], dumps: bool
    ):
        if undefined := _undefined(module, addresses):
            raise RuntimeError(f"the code calls functions that nothing defines: {', '.join(undefined)}")
        messages: list[str] = []

        def keep(diagnostic: ir.Diagnostic) -> bool:
            messages.append(diagnostic.message)
            return True

        # The engine prints diagnostics, and raises an error without them.
        handler = module.context.attach_diagnostic_handler(keep)
        try:
            self._engine = ExecutionEngine(module, opt_level=level, enable_object_dump=dumps)
            for symbol, address in addresses.items():
                self._engine.raw_register_runtime(symbol, ctypes.c_void_p(address))
            self._functions = {name: self._engine.raw_lookup(name) for name in functions}
        except RuntimeError as error:
            raise RuntimeError("; ".join([str(error), *messages])) from error
        finally:
            handler.detach()
        if not all(self._functions.values()):
            raise RuntimeError("the code could not be linked: standard error has the reason")

    def __getitem__(self, name: str) -> int:
        return self._functions[name]

    def object_file(self) -> bytes:
        """Return the code as an object file.

        LLVM ends the process where it cannot write a file, so this one is in memory. Linux only, as `ObjectCode`.

        Raises:
            OSError: if files of this process, which those in memory are too, have a limit that code may exceed.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit != resource.RLIM_INFINITY and limit < LARGEST_CODE:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        with open(os.memfd_create("code"), "rb") as file:  # noqa: PTH123 - it is a descriptor
            self._engine.dump_to_object_file(f"/proc/self/fd/{file.fileno()}")
            return file.read()


def _undefined(module: ir.Module, addresses: Mapping[str, int]) -> list[str]:
    """Return the functions that ``module`` calls, and that nothing in it, ``addresses`` or this process defines.

    The engine prints them to standard error.
    """
    process = ctypes.CDLL(None)
    functions = [op.operation for op in body_of(module) if op.operation.name == "llvm.func"]
    declared = {ir.StringAttr(op.attributes["sym_name"]).value for op in functions if not op.regions[0].blocks}
    undefined = {name for name in declared - addresses.keys() if not hasattr(process, name)}
    if not undefined:
        return []
    callees = [
        call.attributes["callee"]
        for call in operations(module.operation, ("llvm.call",))
        if "callee" in call.attributes
    ]
    return sorted(undefined & {ir.FlatSymbolRefAttr(callee).value for callee in callees})
