"""The passes of an engine on a module, seen by the observers of the call that loads it."""

from __future__ import annotations

from fx_importer.diagnostics.trace import Trace
from fx_importer.mlir.bindings import ir
from fx_importer.pipelines import Pass, Pipeline, Stage, run_stage
from fx_importer.rewrites.allow_inlining import allow_inlining

INLINE = Stage("inline", "There is one function.", (allow_inlining, Pass("inline{default-pipeline=}")))


def run_engine_pipeline(pipeline: Pipeline, module: ir.Module) -> None:
    """Run the stages of ``pipeline`` on ``module``, in place.

    Raises:
        UsageError: if a pass rejects the module.
        StageFailed: if a pass fails, with its errors.
    """
    trace = Trace(planned=tuple(stage.name for stage in pipeline.stages))
    for stage in pipeline.stages:
        with trace.stage(stage.name, module, pipeline=str(stage), recreate=module.operation.clone):
            run_stage(stage, module)
