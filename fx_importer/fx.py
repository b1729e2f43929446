"""The names of ``torch_mlir.fx`` and ``torch_mlir.compiler_utils``, for code that is written for these."""

from __future__ import annotations

import warnings

from fx_importer.api.lower import export_and_import, stateless_fx_import
from fx_importer.api.lower_module import BackendLoweringOptions, lower_mlir_module, run_pipeline_with_repro_report
from fx_importer.decompositions import get_decomposition_table
from fx_importer.errors import FxImporterError
from fx_importer.importing import FxImporter, FxImporterHooks
from fx_importer.output_types import OutputType

__all__ = [
    "BackendLoweringOptions",
    "FxImporter",
    "FxImporterHooks",
    "OutputType",
    "TorchMlirCompilerError",
    "export_and_import",
    "get_decomposition_table",
    "lower_mlir_module",
    "run_pipeline_with_repro_report",
    "stateless_fx_import",
]

TorchMlirCompilerError = FxImporterError

warnings.warn(
    "fx_importer.fx has the names of torch_mlir.fx: new code imports them from fx_importer, and "
    "TorchMlirCompilerError is fx_importer.FxImporterError",
    DeprecationWarning,
    stacklevel=2,
)
