"""The only import of the MLIR bindings, which ship inside the ``torch-mlir`` wheel as ``torch_mlir.*``."""

from __future__ import annotations

import functools
import io
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from torch_mlir import ir, passmanager
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir._mlir_libs._torchMlir import register_dialect
from torch_mlir.dialects import func as func_d

from fx_importer.errors import UsageError

__all__ = [
    "bytecode_of",
    "func_d",
    "ir",
    "load_dialects",
    "new_context",
    "passmanager",
    "portable_artifact",
    "stablehlo_d",
    "stablehlo_version",
    "torch_mlir_opt",
    "torch_op_names",
    "write_bytecode",
]

stablehlo_d = _stablehlo

# Unlike all other passes, StableHLO's own are registered only by this call. Calling it twice is harmless.
_stablehlo.register_stablehlo_passes()

# For each operation that they return, the bindings import the Python module of its dialect. They do not cache that
# there is none: each failed import takes 30 µs, and importing an empty module half a microsecond.
for _dialect in ("stablehlo", "chlo", "torch_c", "tm_tensor"):
    if find_spec(_module := f"torch_mlir.dialects.{_dialect}") is None:
        sys.modules[_module] = ModuleType(_module)


_EMITTED = (
    *("affine", "arith", "bufferization", "builtin", "cf", "complex", "func", "linalg", "llvm", "math", "memref"),
    *("ml_program", "quant", "scf", "shape", "tensor", "tosa", "vector"),
)
"""Dialects of which Python code creates operations. Parsers and passes load others: all take five milliseconds."""


def new_context() -> ir.Context:
    """Return a context in which the torch dialect is loaded and diagnostics arrive in `ir.MLIRError`, not on stderr."""
    context = ir.Context(load_on_create_dialects=())
    for dialect in _EMITTED:
        context.get_dialect_descriptor(dialect)  # unlike context.dialects, it does not import the dialect's bindings
    register_dialect(context)
    return context


def write_bytecode(operation: ir.Operation, path: Path) -> None:
    """Write ``operation`` as bytecode. Raises `OSError` where the disk is full: MLIR's own file would end the process.

    It takes extra memory for one weight at a time.
    """
    with path.open("wb") as file:
        operation.write_bytecode(file)


def bytecode_of(operation: ir.Operation) -> bytes:
    """Return ``operation`` as bytecode."""
    operation.write_bytecode(data := io.BytesIO())
    return data.getvalue()


@functools.cache
def torch_op_names() -> tuple[str, ...]:
    """Return the names of the torch dialect's operations: ``"torch.aten.add.Tensor"``."""
    from torch_mlir.dialects import torch  # only here: its classes take 12 MB

    operations = [var for var in vars(torch).values() if hasattr(var, "OPERATION_NAME")]
    return tuple(dict.fromkeys(operation.OPERATION_NAME for operation in operations))


def torch_mlir_opt() -> Path:
    """Return the path of the wheel's ``torch-mlir-opt``."""
    return Path(ir.__file__).parent / "_mlir_libs" / "torch-mlir-opt"


def load_dialects(context: ir.Context) -> None:
    """Load the dialects that torch is lowered to into ``context``: half a millisecond the first time, then nothing.

    torch_c, tm_tensor, stablehlo and chlo can be loaded only by a pass that depends on them.
    """
    if all(map(context.is_registered_operation, _LOADED_BY_PASSES)):
        return
    passes = passmanager.PassManager("builtin.module", context)
    passes.add("func.func(convert-torch-to-tmtensor,convert-torch-to-tosa,convert-torch-to-stablehlo)")
    passes.run(ir.Module.create(ir.Location.unknown(context)).operation)


_LOADED_BY_PASSES = ("torch_c.to_builtin_tensor", "tm_tensor.yield", "stablehlo.add", "chlo.constant")
"""An operation of each dialect that passes load: it is registered as soon as the dialect is loaded."""

_VERSIONS = {"current": "NONE", "week-4": "WEEK_4", "week-12": "WEEK_12", "minimum": "MAX"}


def stablehlo_version(name: str) -> str:
    """Return the release of StableHLO that ``name`` is, or that has the compatibility requirement ``name``.

    Raises:
        UsageError: if the wheel cannot write artifacts for it.
    """
    if name in _VERSIONS:
        requirement = getattr(_stablehlo.StablehloCompatibilityRequirement, _VERSIONS[name])
        return str(_stablehlo.get_version_from_compatibility_requirement(requirement))
    least, last = _stablehlo.get_minimum_version(), _stablehlo.get_current_version()
    if not re.fullmatch(r"\d+\.\d+\.\d+", name) or not _numbers(least) <= _numbers(name) <= _numbers(last):
        raise UsageError(f"no StableHLO version '{name}': from {least} to {last}, or {', '.join(_VERSIONS)}")
    return name


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def portable_artifact(module: ir.Module, version: str = "week-12") -> bytes:
    """Return StableHLO as bytecode that the release ``version`` of StableHLO and all later ones read.

    Raises:
        UsageError: if the version does not exist, or it cannot represent the module; no version has ``dense_resource``.
    """
    release = stablehlo_version(version)
    try:
        return _stablehlo.serialize_portable_artifact(module, release)
    except ValueError as error:
        raise UsageError(f"no portable artifact of StableHLO {release}: {error}") from error
