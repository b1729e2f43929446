"""Lowering a module that is already there: what torch-mlir's users call `compiler_utils` for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fx_importer.bindings import ir
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import pipeline_from_torch, run_stage, run_text
from fx_importer.reports import write_report
from fx_importer.trace import Trace


class HasFinitePolicy(Protocol):
    """Anything that says whether a lowering may emit infinities."""

    @property
    def allow_non_finites(self) -> bool: ...


@dataclass(frozen=True)
class BackendLoweringOptions:
    """For `lower_mlir_module`, which takes torch-mlir's class of this name too."""

    allow_non_finites: bool = True


def run_pipeline_with_repro_report(
    module: ir.Module, pipeline: str, description: str, enable_ir_printing: bool = False
) -> None:
    """Run ``pipeline``, in MLIR's syntax, on ``module``, in place. ``description`` names it in errors.

    Raises:
        UsageError: if ``pipeline`` is not a pipeline.
        StageFailed: if it fails; the error names a directory that repeats the failure.
    """
    trace = Trace(reporter=write_report)
    with trace.stage(description or "pipeline", module, pipeline=pipeline):
        run_text(pipeline, module, print_passes=enable_ir_printing)


def lower_mlir_module(
    verbose: bool,
    output_type: str | Enum,
    module: ir.Module,
    backend_options: HasFinitePolicy | LoweringOptions | None = None,
) -> ir.Module:
    """Lower ``module``, which is in the torch backend form, to ``output_type``, in place; return it.

    ``verbose`` prints the module as it is then, large constants elided. ``backend_options`` may be all the options of a
    lowering, `LoweringOptions`.

    Raises:
        UsageError: for an output type that is not one.
        StageFailed: if a stage fails; the error names a directory that repeats the failure.
    """
    options = backend_options or LoweringOptions()
    if not isinstance(options, LoweringOptions):
        options = LoweringOptions(allow_non_finites=options.allow_non_finites)
    trace = Trace(reporter=write_report)
    for stage in pipeline_from_torch(OutputType.get(output_type), options).stages:
        with trace.stage(stage.name, module, pipeline=str(stage)):
            run_stage(stage, module)
    if verbose:
        print(module.operation.get_asm(use_local_scope=True, large_elements_limit=16))
    return module
