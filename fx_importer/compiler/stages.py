"""Execution of the stages of a pipeline on a module, with timing, printing, dumps and failure reports."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from fx_importer.diagnostics.reports import Dumps, Reporter
from fx_importer.diagnostics.trace import Investigator, Trace
from fx_importer.frontend.torch_patches import warnings_filtered
from fx_importer.mlir.bindings import ir, load_dialects
from fx_importer.mlir.module_contents import replace_contents
from fx_importer.options import Options, PrintOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage, run_stage
from fx_importer.pipelines.isolated_runner import RunStage

SILENT = PrintOptions()


def new_trace(options: Options, planned: Sequence[str], investigate: Investigator | None = None) -> Trace:
    """Return a record that reports failures and writes the dumps that ``options`` select."""
    dumps = None if options.running.dump_ir is None else Dumps(options.running)
    return Trace(Reporter(options), investigate, dumps, tuple(planned))


def admit(output_type: OutputType, context: ir.Context) -> None:
    """Allow unregistered operations in ``context`` if ``output_type`` allows them."""
    if output_type.allows:
        load_dialects(context)
        for dialect in {pattern.partition(".")[0] for pattern in output_type.allows}:
            try:
                context.get_dialect_descriptor(dialect)
            except ValueError:
                context.allow_unregistered_dialects = True


def run_pipeline(
    pipeline: Pipeline, module: ir.Module, trace: Trace, run: RunStage, printing: PrintOptions = SILENT
) -> None:
    """Run the stages of ``pipeline`` on ``module`` in place, using ``run``."""
    first = module.operation.clone()
    trace.imported = trace.imported or first
    for number, stage in enumerate(pipeline.stages):
        again = functools.partial(_after, pipeline.stages[:number], first)
        with trace.stage(stage.name, module, pipeline=str(stage), recreate=again):
            run(stage, print_passes=printing.passes)
        if printing.stages:
            _print(stage.name, module)
    if printing.stages and not pipeline.stages:
        _print("importing", module)


def _print(stage: str, module: ir.Module) -> None:
    print(f"// ----- after stage '{stage}'")
    # Local scope omits the resource section, which has all weights in hexadecimal.
    print(module.operation.get_asm(large_elements_limit=16, use_local_scope=True))


def _after(stages: Sequence[Stage], first: ir.Operation) -> ir.Operation:
    """Rerun ``stages``, which passed, on ``first``. This avoids a copy before each stage in the successful case."""
    module = ir.Module.create(first.location)
    replace_contents(module, first.clone())
    with warnings_filtered("ignore"):  # they were issued before
        for stage in stages:
            run_stage(stage, module)
    return module.operation
