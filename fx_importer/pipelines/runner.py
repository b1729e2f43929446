"""Runs stages."""

from __future__ import annotations

from fx_importer.bindings import ir, passmanager
from fx_importer.pipelines.pipeline import Stage


def run_stage(stage: Stage, module: ir.Module, *, print_passes: bool = False) -> None:
    """Run ``stage`` on ``module``, in place.

    Raises:
        ir.MLIRError: if a pass failed, or what the stage left is not valid. ``module`` is then in no state to be used.
    """
    run_text(str(stage), module, print_passes=print_passes)


def run_text(pipeline: str, module: ir.Module, *, print_passes: bool = False) -> None:
    """Run a pipeline in MLIR's syntax on ``module``, in place. ``print_passes`` prints to the native standard error.

    Raises:
        ValueError: if ``pipeline`` is not a pipeline.
        ir.MLIRError: as `run_stage`.
    """
    passes = passmanager.PassManager.parse(pipeline, module.context)
    passes.enable_verifier(False)  # after each pass it would double the time; once, at the end, is below
    if print_passes:
        module.context.enable_multithreading(False)
        passes.enable_ir_printing(print_module_scope=True, large_elements_limit=16, large_resource_limit=16)
    passes.run(module.operation)
    module.operation.verify()
