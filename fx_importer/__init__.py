"""Carries a PyTorch model to MLIR: ``export_and_import(model, x, output_type="tosa")``."""

import importlib
from typing import TYPE_CHECKING, Any

from fx_importer import loaded as loaded  # before any other: it notes when

if TYPE_CHECKING:
    from fx_importer.causes import Cause, Place
    from fx_importer.decompositions import decomposes, get_decomposition_table
    from fx_importer.entry import compare_decompositions, export_and_import, lower, stateless_fx_import
    from fx_importer.errors import (
        ContractWarning,
        CrashedError,
        ExportError,
        FxImporterError,
        NotInstalledError,
        Refusal,
        StageFailed,
        UnsupportedProgramError,
        UsageError,
    )
    from fx_importer.execution import Caller
    from fx_importer.explaining import explain
    from fx_importer.explanation import Explanation
    from fx_importer.importing import FxImporter, FxImporterHooks, InputInfo, NodeBuilder, Refused
    from fx_importer.installation import Checkup, doctor
    from fx_importer.lowered import Lowered
    from fx_importer.lowering import (
        BackendLoweringOptions,
        lower_mlir_module,
        pipeline_for,
        run_pipeline_with_repro_report,
    )
    from fx_importer.lowerings import Declined, Lowerings, external, lowers
    from fx_importer.manifest import Manifest
    from fx_importer.options import Contract, Mutation, Weights
    from fx_importer.output_types import OutputType
    from fx_importer.pipelines import Nested, Pass, Pipeline, Stage
    from fx_importer.progress import Progress
    from fx_importer.reducing import reduce
    from fx_importer.reduction import Reduction
    from fx_importer.verification import Divergence, Inputs, MismatchError, Verdict
    from fx_importer.weights import link, read_weights

__all__ = [
    "BackendLoweringOptions",
    "Caller",
    "Cause",
    "Checkup",
    "Contract",
    "ContractWarning",
    "CrashedError",
    "Declined",
    "Divergence",
    "Explanation",
    "ExportError",
    "FxImporter",
    "FxImporterError",
    "FxImporterHooks",
    "InputInfo",
    "Inputs",
    "Lowered",
    "Lowerings",
    "Manifest",
    "MismatchError",
    "Mutation",
    "Nested",
    "NodeBuilder",
    "NotInstalledError",
    "OutputType",
    "Pass",
    "Pipeline",
    "Place",
    "Progress",
    "Reduction",
    "Refusal",
    "Refused",
    "Stage",
    "StageFailed",
    "UnsupportedProgramError",
    "UsageError",
    "Verdict",
    "Weights",
    "compare_decompositions",
    "decomposes",
    "doctor",
    "explain",
    "export_and_import",
    "external",
    "get_decomposition_table",
    "link",
    "lower",
    "lower_mlir_module",
    "lowers",
    "pipeline_for",
    "read_weights",
    "reduce",
    "run_pipeline_with_repro_report",
    "stateless_fx_import",
]

# A name is imported when it is first asked for: `fx-importer --help` must not wait for torch.
_HOMES = {
    "causes": ("Cause", "Place"),
    "entry": ("compare_decompositions", "export_and_import", "lower", "stateless_fx_import"),
    "decompositions": ("decomposes", "get_decomposition_table"),
    "errors": (
        "ContractWarning",
        "CrashedError",
        "ExportError",
        "FxImporterError",
        "NotInstalledError",
        "Refusal",
        "StageFailed",
        "UnsupportedProgramError",
        "UsageError",
    ),
    "explaining": ("explain",),
    "explanation": ("Explanation",),
    "importing": ("FxImporter", "FxImporterHooks", "InputInfo", "NodeBuilder", "Refused"),
    "installation": ("Checkup", "doctor"),
    "lowered": ("Lowered",),
    "lowering": ("BackendLoweringOptions", "lower_mlir_module", "pipeline_for", "run_pipeline_with_repro_report"),
    "lowerings": ("Declined", "Lowerings", "external", "lowers"),
    "execution": ("Caller",),
    "manifest": ("Manifest",),
    "options": ("Contract", "Mutation", "Weights"),
    "output_types": ("OutputType",),
    "pipelines": ("Nested", "Pass", "Pipeline", "Stage"),
    "progress": ("Progress",),
    "reducing": ("reduce",),
    "reduction": ("Reduction",),
    "weights": ("link", "read_weights"),
    "verification": ("Divergence", "Inputs", "MismatchError", "Verdict"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fx_importer' has no attribute '{name}'")
    return getattr(importlib.import_module(f"fx_importer.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
