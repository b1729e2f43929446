"""The names of ``torch_mlir.compiler_utils``, for code that is written for it."""

from __future__ import annotations

from enum import Enum

from torch_mlir.compiler_utils import (
    BackendLoweringOptions,
    TensorPlaceholder,
    get_module_name_for_debug_dump,
)

from fx_importer.api import lower_module
from fx_importer.api.lower_module import HasFinitePolicy, run_pipeline_with_repro_report
from fx_importer.errors import FxImporterError
from fx_importer.mlir.bindings import ir
from fx_importer.options import Contract, LoweringOptions
from fx_importer.output_types import OutputType

__all__ = [
    "BackendLoweringOptions",
    "OutputType",
    "TensorPlaceholder",
    "TorchMlirCompilerError",
    "get_module_name_for_debug_dump",
    "lower_mlir_module",
    "run_pipeline_with_repro_report",
]

TorchMlirCompilerError = FxImporterError


def lower_mlir_module(
    verbose: bool,
    output_type: str | Enum | OutputType,
    module: ir.Module,
    backend_options: HasFinitePolicy | LoweringOptions | None = None,
) -> ir.Module:
    """Lower ``module``, which is in the torch backend form, to ``output_type``, in place; return it.

    What the contract of the output type does not allow is a `ContractWarning`: torch-mlir checks none.

    Raises:
        UsageError: for an unknown output type.
        StageFailed: if a stage fails; the error names a directory that reproduces the failure.
        CrashedError: if a stage ends its own process; likewise.
    """
    options = backend_options or BackendLoweringOptions()
    if not isinstance(options, LoweringOptions):
        options = LoweringOptions(allow_non_finites=options.allow_non_finites, contract=Contract.WARN)
    return lower_module.lower_mlir_module(verbose, output_type, module, options)
