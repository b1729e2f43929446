"""Python steps that fail, for processes that tests start: ``imported_step("tests.pipelines.faults:abort")``."""

import ctypes
import os
import warnings

from fx_importer.errors import ContractWarning, UsageError
from fx_importer.mlir.bindings import ir


def abort(_module: ir.Operation) -> None:
    os.write(2, b"LLVM ERROR: cannot go on\n")
    os.abort()


def segfault(_module: ir.Operation) -> None:
    ctypes.string_at(0)


def loop(_module: ir.Operation) -> None:
    while True:
        pass


def hog(_module: ir.Operation) -> None:
    held = []
    while True:
        held.append(bytearray(os.urandom(1024) * 4096))


def leave(_module: ir.Operation) -> None:
    os._exit(3)


def refuse(module: ir.Operation) -> None:
    module.regions[0].blocks[0].operations[0].location.emit_error("gave up on it")


def raise_value_error(_module: ir.Operation) -> None:
    raise ValueError("a defect")


def raise_usage_error(_module: ir.Operation) -> None:
    raise UsageError("not so")


def warn(_module: ir.Operation) -> None:
    warnings.warn("it holds what it may not", ContractWarning, stacklevel=1)
