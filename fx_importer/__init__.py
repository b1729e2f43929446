"""Carries a PyTorch model to MLIR: ``export_and_import(model, x, output_type="tosa")``."""

from fx_importer.compilation import Lowered, export_and_import, lower, stateless_fx_import
from fx_importer.decompositions import get_decomposition_table
from fx_importer.errors import (
    ExportError,
    FxImporterError,
    Refusal,
    StageFailed,
    UnsupportedProgramError,
    UsageError,
)
from fx_importer.importing import FxImporter, FxImporterHooks, InputInfo
from fx_importer.lowering import BackendLoweringOptions, lower_mlir_module, run_pipeline_with_repro_report
from fx_importer.options import Mutation
from fx_importer.output_types import OutputType

__all__ = [
    "BackendLoweringOptions",
    "ExportError",
    "FxImporter",
    "FxImporterError",
    "FxImporterHooks",
    "InputInfo",
    "Lowered",
    "Mutation",
    "OutputType",
    "Refusal",
    "StageFailed",
    "UnsupportedProgramError",
    "UsageError",
    "export_and_import",
    "get_decomposition_table",
    "lower",
    "lower_mlir_module",
    "run_pipeline_with_repro_report",
    "stateless_fx_import",
]
